"""Captures in which layers are stamped out, compared with those in which the interpreter captures each."""

import framejit
from framejit.capture.alike.layers_alike import LayersAlike

from support import CountingBackend


def same_as_interpreted(monkeypatch, make, *args):
    """The graph, where its nodes come from, and the guards are those of a capture of all layers of a module."""

    def captured():
        model, backend = make(), CountingBackend()
        fast = framejit.optimize(model.forward, backend=backend)
        fast(*args)
        (graph,) = backend.graphs
        (entry,) = fast.entries
        records = sorted((r.text, r.user_line) for r in entry.tag.records)
        nodes = [(n.name, n.meta.get("stack_trace"), n.meta.get("place")) for n in graph.graph.nodes]
        return graph.code, nodes, records

    alike = captured()
    monkeypatch.setattr(
        LayersAlike, "call", lambda self, frame, module, args, kwargs, ordinary: ordinary(frame, module, args, kwargs)
    )
    assert alike == captured()
