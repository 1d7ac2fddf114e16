"""`simSpec`, the annotation of k8s-cluster-simulator: what a pod uses, phase after phase.

It is use, neither request nor limit. The run time is the sum of the phases; after it nothing is
used.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dralab.api.yaml_documents import YamlError, documents
from dralab.values.quantity import Number, QuantityError, parse_any

ANNOTATION: Final = "simSpec"


@dataclass(frozen=True, slots=True)
class Phase:
    """A number of seconds with this use of each resource."""

    seconds: int
    usage: Mapping[str, Number]


def parse(text: str) -> tuple[Phase, ...]:
    """Return the phases of an annotation; ValueError names the wrong phase."""
    try:
        found = next(iter(documents(text)), None)
    except YamlError as error:
        raise ValueError(f"{ANNOTATION} is not a YAML list: {error}") from None
    value = None if found is None else found.value
    if not isinstance(value, list) or not value:
        raise ValueError(f"the annotation {ANNOTATION} must be a list of phases")
    return tuple(_phase(index, item) for index, item in enumerate(value))


def _phase(index: int, item: object) -> Phase:
    where = f"{ANNOTATION}[{index}]"
    if not isinstance(item, dict):
        raise ValueError(f"{where} must be a mapping")  # noqa: TRY004 - broken input
    seconds, usage = item.get("seconds"), item.get("resourceUsage")
    if not isinstance(seconds, int) or isinstance(seconds, bool) or seconds < 0:
        raise ValueError(f"{where}.seconds must be whole seconds, not {seconds!r}")
    if not isinstance(usage, dict):
        raise ValueError(f"{where}.resourceUsage must be given")  # noqa: TRY004 - broken input
    try:
        return Phase(seconds, {str(key): parse_any(amount) for key, amount in usage.items()})
    except QuantityError:
        raise ValueError(f"{where}.resourceUsage has a value that is not a quantity") from None


def usage_at(phases: Sequence[Phase], elapsed: int) -> Mapping[str, Number]:
    """Return the use after `elapsed` whole seconds: that of the first phase not over by then."""
    until = 0
    for phase in phases:
        until += phase.seconds
        if until > elapsed:
            return phase.usage
    return {}


def total(phases: Sequence[Phase]) -> int:
    """Return the run time in seconds."""
    return sum(phase.seconds for phase in phases)
