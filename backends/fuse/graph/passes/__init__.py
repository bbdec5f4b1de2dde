"""The passes over a graph, a file each. `pipeline.py` has them in order and runs them."""
