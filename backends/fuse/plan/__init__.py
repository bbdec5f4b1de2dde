"""The plan: what `native/plan/plan_run.c` does for a call of a compiled graph, step by step."""
