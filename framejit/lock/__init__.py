"""The baseline: what became of a program's functions, kept in `framejit.lock` and compared with each later run.

    summary     the functions a run saw, without anything that belongs to one machine or to one version of a file
    lockfile    the file
    drift       what differs between two summaries, in words
    command     `framejit check`
    limits      `@pytest.mark.framejit(max_graphs=1)`; the pytest plugin itself is the module `pytest_framejit`
"""
