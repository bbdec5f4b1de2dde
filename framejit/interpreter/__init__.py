"""The symbolic interpreter: frames that are carried out on values, instruction by instruction."""
