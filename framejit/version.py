"""The version of framejit."""
__version__ = "0.1.0"
