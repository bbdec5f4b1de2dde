"""Bits of `type.__flags__` that CPython keeps from one release to the next."""

from typing import Final

IMMUTABLE: Final = 1 << 8
"""Py_TPFLAGS_IMMUTABLETYPE: attributes of the class can't be set."""
HEAP_TYPE: Final = 1 << 9
"""Py_TPFLAGS_HEAPTYPE: made by a class statement, or by C code that shows its slots in the MRO."""
BASE_TYPE: Final = 1 << 10
"""Py_TPFLAGS_BASETYPE: other classes may be derived from it."""
