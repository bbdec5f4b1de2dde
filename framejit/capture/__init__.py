"""From one frame to one entry: graph building, side effects, resume functions, code generation."""
