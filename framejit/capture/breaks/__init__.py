"""Where a graph ends before its frame does: what is told, and the functions in which the rest of the program goes
on."""
