"""Optional packages that a few features need, and `pip install dralab` omits.

Whoever needs one asks for it before work begins; commands print the error as one line.
"""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Final

# As in `pyproject.toml`: an extra, and the modules that it brings.
EXTRAS: Final[Mapping[str, Sequence[str]]] = {
    "distributed": ("distributed",),
    "etcd": ("greenlet", "hpack", "google.protobuf"),
    "grpc": ("grpc", "google.protobuf"),
    "gym": ("gymnasium",),
    "mcp": ("mcp",),
    "optimal": ("ortools",),
    "parquet": ("pyarrow",),
    "picture": ("matplotlib",),
    "simkube": ("msgpack",),
    "training": ("scipy",),
    "uvloop": ("uvloop",),
    "workers": ("cloudpickle",),
    "zeromq": ("zmq",),
}


class MissingExtraError(RuntimeError):
    """A feature needs an extra that is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(feature, extra)
        self.feature = feature
        self.extra = extra

    def __str__(self) -> str:
        return (
            f"{self.feature} needs the extra `{self.extra}`, which is not installed: "
            f"pip install '.[{self.extra}]' in the checkout"
        )


def has(extra: str) -> bool:
    """Return whether all modules of an extra can be found; none is imported."""
    try:
        return all(find_spec(name) is not None for name in EXTRAS[extra])
    except ImportError:  # the package around a module
        return False


def require(extra: str, feature: str) -> None:
    """Raise MissingExtraError unless an extra is installed; `feature` is what needs it."""
    if not has(extra):
        raise MissingExtraError(feature, extra)
