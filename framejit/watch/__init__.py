"""`framejit run --watch`: what the compiler does, on the terminal, while a script runs.

    terminal  whether there is a terminal for a view, and the copy of it that the script writes to
    program   in the script's process: what is told of it, and when it wants its terminal back
    channel   how that is told, and marks in the output that say when
    told      what is told: functions, compiles in progress, breaks by cost
    reading   standard input that says so before the script reads it
    viewer    the process that has the terminal: relays the script's output, draws, takes keys
    output    what the script wrote: kept whole, and its last lines
    keys      bytes of a keyboard as keys
    view      the picture, of rich's widgets
"""
