"""What a device of the early stages offers: counters, quantities, blocks and access modes.

Rules: k8srm-prototype 183b121 and 27183b1, `pkg/api` (`capacity` and `accessmode`), with the last
single block of a block capacity usable.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Self

from dralab.values.quantity import Number, form_of, parse_any, render
from dralab.values.records import dataclass

Topologies = tuple[tuple[str, str], ...]
"""(type, name) pairs, sorted by type."""

ACCESS_MODES: Final = (
    "ReadOnlyShared",
    "ReadWriteShared",
    "WriteExclusive",
    "ReadWriteExclusive",
)
# Which modes held by others forbid a mode.
BLOCKED_BY: Final[Mapping[str, frozenset[str]]] = {
    "ReadOnlyShared": frozenset({"ReadWriteExclusive"}),
    "ReadWriteShared": frozenset({"WriteExclusive", "ReadWriteExclusive"}),
    "WriteExclusive": frozenset({"ReadWriteShared", "WriteExclusive", "ReadWriteExclusive"}),
    "ReadWriteExclusive": frozenset(ACCESS_MODES),
}


class CapacityError(ValueError):
    """An allocation that does not fit its capacity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityRequest:
    """What a claim asks of a capacity: an amount, or an access mode."""

    capacity: str
    kind: str
    amount: Number = 0
    mode: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What was taken of one capacity: an amount (rounded to its block) or an access mode."""

    capacity: str
    topologies: Topologies = ()
    amount: Number = 0
    mode: str = ""
    text: str = ""

    @property
    def key(self) -> str:
        """The capacity it came from: `name;type=topology;…`."""
        return key_of(self.capacity, self.topologies)


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyCapacity:
    """One capacity of a device: `kind` is counter, quantity, block or accessMode.

    `amount` is what is left, `size` the block, `allowed` the access modes, `held` their holders.
    """

    name: str
    kind: str
    amount: Number = 0
    size: Number = 1
    binary: bool = False
    allowed: frozenset[str] = frozenset()
    held: tuple[int, int, int, int] = (0, 0, 0, 0)
    topologies: Topologies = ()

    @property
    def key(self) -> str:
        """How allocations name this capacity: `name;type=topology;…`, types sorted."""
        return key_of(self.name, self.topologies)

    def take_request(self, request: CapacityRequest) -> tuple[Taken | None, Number]:
        """Return what this capacity contributes to a request, and what is still missing.

        >>> EarlyCapacity(name="cpu", kind="block", amount=7, size=3).take_request(
        ...     CapacityRequest(capacity="cpu", kind="quantity", amount=7)
        ... )[1]
        3
        """
        wanted, offered = request.amount, self.amount
        if self.kind == "block":
            wanted = -(-wanted // self.size) * self.size
            offered = offered // self.size * self.size
        amount = min(wanted, offered)
        if amount <= 0:
            return None, wanted
        text = render(amount, "BinarySI" if self.binary else "DecimalSI")
        taken = Taken(capacity=self.name, topologies=self.topologies, amount=amount, text=text)
        return taken, wanted - amount

    def grant(self, mode: str) -> str | None:
        """Return the mode that a request for `mode` gets, upgraded until allowed; None: blocked."""
        if mode not in ACCESS_MODES:
            raise CapacityError(f'invalid request access mode "{mode}"')
        # The last mode is always allowed: a device that allows no sharing can still be had alone.
        effective = next(
            m
            for m in ACCESS_MODES[ACCESS_MODES.index(mode) :]
            if m in self.allowed or m == ACCESS_MODES[-1]
        )
        holders = {m for m, count in zip(ACCESS_MODES, self.held, strict=True) if count}
        return None if holders & BLOCKED_BY[effective] else effective

    def without(self, taken: Taken) -> Self:
        """Return the capacity that is left once `taken` is gone."""
        if bool(taken.mode) != (self.kind == "accessMode"):
            raise CapacityError("request/capacity type mismatch")
        if not taken.mode:
            return replace(self, amount=self.amount - taken.amount)
        counts = dict(zip(ACCESS_MODES, self.held, strict=True))
        counts[taken.mode] += 1
        ro, rw, we, rwe = counts.values()
        return replace(self, held=(ro, rw, we, rwe))


def key_of(name: str, topologies: Topologies) -> str:
    """Return `name;type=topology;…`.

    >>> key_of("cpu", (("numa", "numa-0"),))
    'cpu;numa=numa-0'
    """
    return ";".join([name, *(f"{kind}={topology}" for kind, topology in topologies)])


def read_capacity(data: Mapping[str, Any]) -> EarlyCapacity:
    """Return a capacity from its file form."""
    name = data["name"]
    topologies = tuple(sorted((t["type"], t["name"]) for t in data.get("topologies") or ()))
    kinds = [kind for kind in ("counter", "quantity", "block", "accessMode") if kind in data]
    if len(kinds) != 1:
        raise CapacityError(
            f'capacity "{name}" must have exactly one of counter, quantity, block, accessMode; '
            f"it has {', '.join(kinds) or 'none'}"
        )
    [kind] = kinds
    body = data[kind]
    if kind == "accessMode":
        allowed = frozenset(m for m in ACCESS_MODES[:3] if body.get(f"allow{m}"))
        ro, rw, we, rwe = (int(body.get(m[0].lower() + m[1:]) or 0) for m in ACCESS_MODES)
        return EarlyCapacity(
            name=name,
            kind=kind,
            allowed=allowed,
            held=(ro, rw, we, rwe),
            topologies=topologies,
        )
    size = parse_any(body["size"]) if kind == "block" else 1
    if size <= 0:
        raise CapacityError(f'capacity "{name}": block size {body["size"]} must be positive')
    return EarlyCapacity(
        name=name,
        kind=kind,
        amount=parse_any(body["capacity"]),
        size=size,
        binary=form_of(str(body["capacity"])) == "BinarySI",
        topologies=topologies,
    )


def read_request(data: Mapping[str, Any]) -> CapacityRequest:
    """Return a capacity request from its file form."""
    name = data["capacity"]
    kinds = [kind for kind in ("counter", "quantity", "accessMode") if kind in data]
    if len(kinds) != 1:
        raise CapacityError(
            f'request of "{name}" must have exactly one of counter, quantity, accessMode; '
            f"it has {', '.join(kinds) or 'none'}"
        )
    [kind] = kinds
    body = data[kind]["request"]
    if kind == "accessMode":
        return CapacityRequest(capacity=name, kind=kind, mode=body)
    return CapacityRequest(capacity=name, kind=kind, amount=parse_any(body))


def fits_kind(request: CapacityRequest, capacity: EarlyCapacity) -> bool:
    """Return whether a request can be served by that kind: quantities also serve blocks."""
    if request.kind == "quantity":
        return capacity.kind in {"quantity", "block"}
    return request.kind == capacity.kind
