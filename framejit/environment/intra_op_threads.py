"""How many threads an operation of torch takes. A forked process has none but the one that forked it, and compiles for
a program that has more."""
from __future__ import annotations

import torch

_of_the_program: int | None = None


def intra_op_threads() -> int:
    """The number of threads that the program's operations take."""
    return torch.get_num_threads() if _of_the_program is None else _of_the_program


def go_without_threads() -> None:
    """In a forked process: operations take the one thread there is, and what is compiled is for as many as before.
    OpenMP would wait for the others for ever."""
    global _of_the_program
    _of_the_program = torch.get_num_threads()
    torch.set_num_threads(1)
