"""What can be wrong with a snapshot; a module of its own, since servers name it at their start."""


class SnapshotError(ValueError):
    """A file that is not a snapshot, or not one that can be read; the message is one line."""
