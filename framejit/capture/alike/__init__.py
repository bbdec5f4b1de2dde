"""Calls that go as earlier ones went: stamped out, or answered, instead of interpreted again."""
