"""What tests of layers alike share."""

import pytest

from framejit.capture.alike.layers_alike import LayersAlike


@pytest.fixture
def stamped(monkeypatch):
    """How many calls each capture has stamped out."""
    counts = []
    close = LayersAlike.close

    def noting(self):
        counts.append(self.stamped)
        close(self)

    monkeypatch.setattr(LayersAlike, "close", noting)
    return counts
