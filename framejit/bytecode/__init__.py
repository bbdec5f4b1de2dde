"""Bytecode in and out: decoding, liveness, emission.  Nothing here knows about tensors."""
