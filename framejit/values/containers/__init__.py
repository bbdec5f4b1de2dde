"""Sequences, mappings, sets and their iterators."""
