"""What each opcode does with a frame, one file per family, registered in `opcodes`."""
