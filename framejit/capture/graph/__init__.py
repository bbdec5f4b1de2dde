"""The graph under construction: its nodes, what they write, and what is known of their results."""
