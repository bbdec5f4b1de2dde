"""Why a capture is not kept, or one that was kept is of no use here."""


class NotKept(Exception):
    """A capture can't be written down, for the reason given."""


class DoesNotFit(Exception):
    """A kept capture is not for this process, or not for this call; the text names what is otherwise."""
