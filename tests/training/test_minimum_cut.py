"""Minimum cuts against networkx's, and against all cuts of small networks."""

from __future__ import annotations

import math
import random
from itertools import combinations

import networkx
import pytest

from framejit.backends.fuse.training.minimum_cut import Network

Edges = list[tuple[int, int, float]]


def some_edges(seed: int, nodes: int, count: int) -> Edges:
    """A way from 0 to `nodes` - 1, and others; widths are whole numbers, or unbounded, but never all the way."""
    draw = random.Random(seed)
    edges: Edges = [(node, node + 1, draw.randint(1, 9)) for node in range(nodes - 1)]
    for _ in range(count):
        start, end = draw.sample(range(nodes), 2)
        edges.append((start, end, draw.choice([draw.randint(0, 9), math.inf if start and end != nodes - 1 else 3])))
    draw.shuffle(edges)
    return edges


def cut_of(edges: Edges, sink: int) -> set[int]:
    network = Network()
    for edge in edges:
        network.add_edge(*edge)
    return network.before_sink(0, sink)


def width(edges: Edges, side: set[int]) -> float:
    """Of the edges that lead to a side."""
    return sum(wide for start, end, wide in edges if start not in side and end in side)


@pytest.mark.parametrize("seed", range(40))
def test_as_all_cuts(seed: int) -> None:
    edges = some_edges(seed, 8, 12)
    sides = [{*chosen, 7} for count in range(7) for chosen in combinations(range(1, 7), count)]
    least = min(width(edges, side) for side in sides)
    found = cut_of(edges, 7)
    assert width(edges, found) == least and 0 not in found
    # of several it is the least: it is a part of all others
    assert all(found <= side for side in sides if width(edges, side) == least)


@pytest.mark.parametrize("seed", range(10))
def test_as_networkx(seed: int) -> None:
    edges = some_edges(seed, 200, 700)
    graph = networkx.DiGraph()
    for start, end, wide in edges:
        known = graph.get_edge_data(start, end, {"capacity": 0.0})["capacity"]
        graph.add_edge(start, end, capacity=known + wide)
    assert width(edges, cut_of(edges, 199)) == networkx.minimum_cut_value(graph, 0, 199)


def test_ways_that_are_not_there_or_without_a_bound() -> None:
    assert cut_of([(0, 1, 2.0), (2, 3, 4.0)], 3) == {2, 3}
    with pytest.raises(ValueError, match="without a bound"):
        cut_of([(0, 1, math.inf), (1, 2, math.inf), (0, 2, 1.0)], 2)


def test_a_long_way() -> None:
    """As long as a network of a thousand layers is: nothing here calls itself."""
    edges: Edges = [(node, node + 1, 2.0 + (node < 15_000)) for node in range(20_000)]
    assert cut_of(edges, 20_000) == {20_000}
