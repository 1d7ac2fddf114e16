"""Why a pod with classic claims has to wait."""


class Waits(Exception):  # noqa: N818 - a fact about a pod
    """A pod cannot go on now; the text says why."""
