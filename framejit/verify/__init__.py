"""Shadow mode: a sampled call of optimized code is also run as plain Python on copies, and the two are compared.

`optimize(verify=0.01)` or FRAMEJIT_VERIFY=0.01 switches it on. Which parts do what:

    sampling       which calls, and the function that stands in for the dispatcher
    shadow         one such call from beginning to end
    world          copies of the function, its arguments and the state it can reach, for the plain run
    outside        state that can't be copied, put back after the plain run
    randomness     both runs draw the same random numbers
    difference     the first difference of two results, with tolerances for each dtype
    graph_runs     what went into each compiled graph during the call, and what came out
    first_node     the first node of a graph that a backend computes differently
    missing_guard  what a new capture assumes that the entry which ran did not
    reproduction   a script that shows the difference again
"""
