"""What is written in C: functions, methods and constructors, as values and as handlers of the real callables."""
