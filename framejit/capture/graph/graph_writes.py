"""What the nodes of a graph under construction have written into, and which versions its tensors have by now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import fx

from framejit.backends.graph_identity import has_version


class GraphWrites:
    """The writes of one graph, by the memory that they go into: looking at all tensors after each of them would take
    quadratic time, and a step of an optimizer writes into each parameter."""

    def __init__(self, graph: fx.Graph) -> None:
        self._graph = graph
        self._nodes: dict[int, list[fx.Node]] = {}
        """By storages of fakes the nodes whose results lie there."""
        self._writers: dict[int, list[fx.Node]] = {}
        self._written: set[int] = set()
        """Storages that were written into since the versions were looked at."""
        self._versions: dict[fx.Node, int] = {}
        self._has_moved = False
        self.ever_moved = False
        """Whether some tensor lies in other memory than when it was made."""

    def close(self) -> None:
        """Let go of nodes and fakes; the versions that were given are kept by nodes."""
        self._nodes.clear()
        self._writers.clear()
        self._versions = {}

    def add_result(self, node: fx.Node) -> None:
        """Note a node whose result is known."""
        fake = node.meta.get("val")
        if has_version(fake):
            self._nodes.setdefault(_memory(fake), []).append(node)

    def add_write(self, node: fx.Node, fakes: Iterable[torch.Tensor]) -> None:
        """Note that a node has written into these."""
        for memory in {*map(_memory, fakes)}:
            self._written.add(memory)
            self._writers.setdefault(memory, []).append(node)

    def tensor_moved(self) -> None:
        """A tensor has been given the memory of another."""
        self._has_moved = self.ever_moved = True

    def into(self, fake: torch.Tensor) -> list[fx.Node]:
        """The nodes that have written into the memory of a fake, in their order."""
        return self._writers.get(_memory(fake), [])

    def results_in(self, memory: int) -> list[fx.Node]:
        """The nodes whose results lie in a storage."""
        self._look_again()
        return self._nodes.get(memory, [])

    def _look_again(self) -> None:
        if self._has_moved:  # who shares memory with whom is not what was noted
            self._nodes.clear()
            for node in self._graph.nodes:
                self.add_result(node)
            self._written, self._has_moved = {*self._nodes}, False

    def versions(self) -> Mapping[fx.Node, int]:
        """The versions of the nodes' tensors that may be others than when they were made."""
        self._look_again()
        if self._written:
            touched = (node for memory in self._written for node in self._nodes.get(memory, ()))
            self._versions = self._versions | {
                node: fake._version for node in touched if has_version(fake := node.meta.get("val"))
            }
            self._written.clear()
        return self._versions


def _memory(fake: torch.Tensor) -> int:
    memory: int = fake.untyped_storage()._cdata
    return memory
