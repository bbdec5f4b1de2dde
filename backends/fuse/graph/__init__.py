"""The graph between capture and kernels: ATen operations on typed values, in single assignment.

`record.py` makes it of what was captured, `passes/` rewrite it, `lowering/` makes loops of it. `graph_text.py` prints
it, `check.py` holds its rules.
"""
