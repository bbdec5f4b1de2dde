"""Makes framejit importable from a checkout where nothing was installed and the C extension was built in place."""
from __future__ import annotations

import importlib.util
import pathlib
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec

ROOT = pathlib.Path(__file__).parents[2]
# packages that stand at the top of the repository, where only an installation looks for them
AT_THE_TOP = ("framejit.guards", "framejit.backends")


class AtTheTop(MetaPathFinder):
    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name not in AT_THE_TOP:
            return None
        folder = ROOT / name.rpartition(".")[2]
        return importlib.util.spec_from_file_location(
            name, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )


def make_importable() -> None:
    sys.path.insert(0, str(ROOT / "tests"))  # support.py and comparison.py
    sys.meta_path.append(AtTheTop())  # last: an installation comes first
