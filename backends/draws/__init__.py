"""Random numbers that a graph draws by an operation of framejit's own: Python's, those of a program's own generators,
and those by a probability that changes."""
