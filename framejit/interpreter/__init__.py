"""The symbolic interpreter: one file per family of opcodes, registered in `opcodes`."""
