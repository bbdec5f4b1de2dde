"""Rewrites of the user's source that remove graph breaks: rules propose them, and each is tried before it is shown as
checked."""
from framejit.findings.rewrites.propose import Search, find_rewrites

__all__ = ["Search", "find_rewrites"]
