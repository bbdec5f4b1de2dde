"""Operations that take functions, which are captured as graphs of their own."""
