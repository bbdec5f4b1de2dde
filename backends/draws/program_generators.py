"""The generators of random numbers, other than torch's own, that a graph draws from."""

from __future__ import annotations

from torch import fx

from framejit.backends.draws.numpy_random import NumpyGenerator, numpy_generators
from framejit.backends.draws.own_generators import ProgramsGenerator, generators_of
from framejit.backends.draws.python_random import PythonGenerator, python_generators

ProgramGenerator = NumpyGenerator | PythonGenerator | ProgramsGenerator


def program_generators(graph: fx.Graph) -> list[ProgramGenerator]:
    """All of them, with the methods of a torch.Generator that its state is kept by."""
    return [*numpy_generators(graph), *python_generators(graph), *generators_of(graph)]
