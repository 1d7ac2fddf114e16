"""The vocabulary of the bench: checks, their levels and groups.

>>> from dralab.drivercheck.rules import require
>>> catalog = Catalog("registration")
>>> @catalog.check(MUST, "a source")
... def plugin_type(bench):
...     '''GetInfo answers the type DRAPlugin.'''
...     require(False, "the type is CSIPlugin")
>>> [f"{check.id}: {check.sentence}" for check in catalog.checks]
['registration.plugin-type: GetInfo answers the type DRAPlugin.']
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from dralab.drivercheck.bench import Bench
from dralab.drivercheck.rules import CheckNeed
from dralab.values import selections

GROUPS: Final = (
    "registration", "slices", "prepare", "unprepare", "crash", "health", "faults", "load",
)  # fmt: skip


class Level(StrEnum):
    """The level of a rule, in the sense of RFC 2119."""

    MUST = "MUST"
    SHOULD = "SHOULD"


MUST: Final = Level.MUST
SHOULD: Final = Level.SHOULD


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One rule for drivers.

    `source` says where the rule comes from. A `fresh` check gets a bench whose driver has not been
    started; the others get one that is registered and has published its devices. `long` checks
    wait most of the time and are started first; `last` ones look at what others have found.
    """

    id: str
    level: Level
    sentence: str
    source: str
    run: Callable[[Bench], None] = field(repr=False)
    needs: frozenset[CheckNeed] = frozenset()
    fresh: bool = False
    long: bool = False
    last: bool = False

    @property
    def group(self) -> str:
        """The part of the contract that the rule belongs to."""
        return self.id.partition(".")[0]


class Catalog:
    """Checks in the order in which they are defined; `usual` is what most of them need."""

    def __init__(
        self, group: str = "", *, needs: Sequence[CheckNeed] = (), fresh: bool = False
    ) -> None:
        self.checks: list[Check] = []
        self.group = group
        self.usual: dict[str, Any] = {"needs": needs, "fresh": fresh}

    def check(
        self, level: Level, source: str, *, id: str = "", sentence: str = "", **how: Any
    ) -> Callable[[Callable[[Bench], None]], Callable[[Bench], None]]:
        """Add the decorated function as a check: its name is the id, its docstring the sentence.

        `how` are further fields of `Check`. ValueError: the id is taken or has no group.
        """

        def add(run: Callable[[Bench], None]) -> Callable[[Bench], None]:
            name = id or f"{self.group}.{run.__name__.replace('_', '-')}"
            if name.partition(".")[0] not in GROUPS:
                raise ValueError(f"{name}: the group is not one of {', '.join(GROUPS)}")
            if any(each.id == name for each in self.checks):
                raise ValueError(f"{name}: a check with this id exists")
            given = self.usual | how
            given["needs"] = frozenset(given["needs"])
            told = sentence or " ".join((run.__doc__ or "").split())
            self.checks.append(
                Check(id=name, level=level, sentence=told, source=source, run=run, **given)
            )
            return run

        return add


def selected(checks: Sequence[Check], patterns: Sequence[str]) -> list[Check]:
    """Return the checks that ids, groups or patterns such as `crash.*` name; none means all.

    NothingSelectedError: a pattern names no check.
    """
    by_id = {check.id: check for check in checks}
    chosen = selections.selected(
        list(by_id), patterns, kind="check", listed_by="dralab driver checks"
    )
    return [by_id[each] for each in chosen]


PLUGIN_PROTO: Final = "k8s.io/kubelet/pkg/apis/dra/v1/api.proto"
REGISTRATION_PROTO: Final = "k8s.io/kubelet/pkg/apis/pluginregistration/v1/api.proto"
HEALTH_PROTO: Final = "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1/api.proto"
TYPES: Final = "k8s.io/api/resource/v1/types.go"
KUBELET: Final = "kubernetes/pkg/kubelet/cm/dra/manager.go"
PLUGIN_MANAGER: Final = "kubernetes/pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go"
LIBRARY: Final = "k8s.io/dynamic-resource-allocation/kubeletplugin/draplugin.go"
KEP: Final = "KEP-4381"
REBOOT: Final = (
    "kubernetes/kubernetes#141433: after a reboot /var/run is empty, checkpoints are not"
)
