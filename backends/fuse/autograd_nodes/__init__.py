"""A compiled graph that gradients are wanted of, as it runs: its plans, and the nodes of autograd that they stand
behind. It knows nothing of how plans are made: `training` does that, or reads what another process has written down."""
