"""Captures on disk: entries as plain data, and what must be so in another process for one to be right there."""
