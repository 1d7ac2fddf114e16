"""The errors of a snapshot, in a separate module that a server imports at its start."""


class SnapshotError(ValueError):
    """A file that is not a snapshot, or not one that can be read; the message is one line."""
