"""Guards: the assumptions compiled code rests on, where each is read again, and how they are checked."""
