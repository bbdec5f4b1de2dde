"""What a capture takes for granted and no guard says, because it can't change while the process runs: in another
process it may be otherwise, so that an entry that is kept there says it (framejit/kept)."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any


class Assumed:
    """Written down while one capture runs."""

    def __init__(self) -> None:
        self.inlined: dict[int, FunctionType] = {}
        """Functions of which captured code has run the bytecode, by id."""
        self.looked_up: dict[tuple[int, str], tuple[type, str, Any]] = {}
        """What classes were found to have under a name, by the id of the class and the name; `sources.ABSENT` where
        that is nothing."""
        self.answers: list[tuple[Callable[..., Any], tuple[Any, ...], Any]] = []
        """Functions that were asked about torch or the machine, with their arguments and answers."""
        self.relations: dict[tuple[int, int], tuple[type, type, bool]] = {}
        """By the ids of two classes, and with them, whether the second said that the first is a subclass of it."""
        self.signatures: dict[int, tuple[Any, FunctionType, int]] = {}
        """Signatures that were made while capturing, by id: of which function, without how many parameters."""
        self.order_of_hashes = False
        """Whether something depends on hashes of text, which each process draws anew."""
        self.only_here = ""
        """Why the capture is good for this process only; empty if nothing is in the way."""

    def inlines(self, function: FunctionType) -> None:
        self.inlined[id(function)] = function

    def found(self, cls: type, name: str, found: Any) -> None:
        self.looked_up[id(cls), name] = cls, name, found

    def asked(self, function: Callable[..., Any], args: tuple[Any, ...], answer: Any) -> None:
        self.answers.append((function, args, answer))

    def is_related(self, cls: type, target: type, answer: bool) -> None:
        self.relations[id(cls), id(target)] = cls, target, answer

    def made_signature(self, signature: Any, function: FunctionType, bound: int) -> None:
        self.signatures[id(signature)] = signature, function, bound

    def depends_on_hashes(self) -> None:
        self.order_of_hashes = True

    def holds_only_here(self, why: str) -> None:
        self.only_here = self.only_here or why
