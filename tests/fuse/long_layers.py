"""What makes layers of tests as long as those of libraries are."""


def instructions() -> float:
    """As many as layers of libraries have, so that they are stamped out."""
    total = 0
    for number in range(12):
        total += number * 2
    return total * 1e-3
