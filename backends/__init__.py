"""What turns a captured graph into something to call."""
