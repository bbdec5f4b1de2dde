"""Plans as launch graphs: all that a plan launches on a device, captured once, is launched at once."""
