"""The tests' own helper modules, importable whatever folder pytest starts in."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
