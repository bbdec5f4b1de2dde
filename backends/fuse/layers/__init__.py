"""Layers alike are compiled once: a graph is compiled with a few of them, and the steps of one stand for all others."""
