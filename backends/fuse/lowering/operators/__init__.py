"""What each ATen operation is lowered to, a family of operations a file."""
