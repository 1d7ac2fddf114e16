"""The request and the interface of admission plugins.

A write is admitted in two steps: plugins with `admit` may change the object, before it is
validated; those with `validate` look at what would be stored. Webhooks and policies, which users
configure, come last in both (`dynamic`).
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Generic, Literal, Protocol, TypeVar, runtime_checkable

import orjson

from dralab.api.kinds import Kind
from dralab.apiserver.access.admission.registry import place_of
from dralab.apiserver.access.scope import RequestScope
from dralab.apiserver.access.users import User
from dralab.apiserver.storage import Stored
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass

Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]
# The operations that a plugin is asked about, by collection.
Concerns = Mapping[str, frozenset[Operation]]
CREATES: Final[frozenset[Operation]] = frozenset({"CREATE"})
UPDATES: Final[frozenset[Operation]] = frozenset({"UPDATE"})
WRITES: Final = CREATES | UPDATES


class AskedOptions(Protocol):
    """How a request writes."""

    @property
    def dry_run(self) -> bool:
        """Whether nothing is to be stored."""
        ...

    def as_reviewed(self, operation: Operation) -> JsonDict:
        """Return the options of the request as it sent them."""
        ...


@dataclass(slots=True, kw_only=True)
class Review:
    """One write about to happen.

    `value` is the object to be stored (None for DELETE); a mutating admission changes it in
    place. `old` is the object that is there (None for CREATE, and for the
    DELETE of one that cannot be read); it may not be changed. `scope` and `options` are those of
    the request. `form` is group, version and kind of the object where they are not those of `kind`,
    as for an eviction. `internal` says that no webhook or policy is asked. `along` are stored
    objects to be replaced together with the write, and by what.
    What asks for a second round of the mutating plugins sets `again`; `round` counts them, and
    `changed` says that a webhook or policy changed the object. `memory` is theirs.
    """

    operation: Operation
    kind: Kind
    namespace: str
    name: str
    subresource: str
    value: dict[str, Any] | None
    old: dict[str, Any] | None
    scope: RequestScope
    options: AskedOptions
    form: tuple[str, str, str] | None = None
    internal: bool = False
    along: Sequence[tuple[Stored, JsonDict]] = ()
    again: bool = False
    round: int = 0
    changed: bool = False
    memory: dict[str, Any] = field(default_factory=dict)

    def encoded(self) -> bytes:
        """Return the object as JSON, to compare it with what it was."""
        return orjson.dumps(self.value, option=orjson.OPT_SORT_KEYS)

    @property
    def user(self) -> User:
        """Who writes."""
        return self.scope.user

    @property
    def given_name(self) -> str:
        """The name of the object, or the prefix of a name that will be generated."""
        metadata = (self.value or {}).get("metadata") or {}
        return self.name or metadata.get("name") or metadata.get("generateName") or ""


@dataclass(slots=True)
class Reinvocation:
    """What one plugin has to ask again in the second round of a write, by their keys."""

    seen: bytes = b""
    invoked: list[Hashable] = field(default_factory=list)
    again: set[Hashable] = field(default_factory=set)

    @classmethod
    def of(cls, review: Review, plugin: str) -> "Reinvocation":
        """Return that of a plugin. If others changed the object meanwhile, all are asked again."""
        found: Reinvocation = review.memory.setdefault(plugin, cls())
        if review.round and found.seen and found.seen != review.encoded():
            found.require()
        return found

    def require(self) -> None:
        """Ask again those asked so far whose reinvocationPolicy wants that."""
        self.again |= set(self.invoked)
        self.invoked.clear()


@runtime_checkable
class Admission(Protocol):
    """One admission plugin; `admit` returns, changes `review.value`, or raises ApiError."""

    name: str

    def admit(self, review: Review) -> None:
        """Check or change a write before it is validated."""
        ...


@runtime_checkable
class ValidatingAdmission(Protocol):
    """One admission plugin that changes nothing; `validate` returns or raises ApiError."""

    name: str

    def validate(self, review: Review) -> None:
        """Check a write that passed validation, before it is stored."""
        ...


@runtime_checkable
class Selective(Protocol):
    """A plugin that handles only some writes: `concerns` has the operations by hub."""

    concerns: Concerns


Plugin = TypeVar("Plugin", bound=Admission | ValidatingAdmission)


class PluginChain(Generic[Plugin]):
    """The plugins of one step, in their order.

    Most look at a few kinds: of twenty, four are asked about a new ConfigMap.
    """

    def __init__(self, plugins: Iterable[Plugin] = ()) -> None:
        self._all: list[Plugin] = _in_order(plugins)
        self._asked: dict[tuple[str, Operation], tuple[Plugin, ...]] = {}
        self._steps: dict[
            tuple[str, str, str], tuple[tuple[str, ...], tuple[Callable[[Review], None], ...]]
        ] = {}
        # For collections that no plugin names, such as custom resources, of which clients make any.
        self._always: tuple[Plugin, ...] = ()
        self._choose()

    def __iter__(self) -> Iterator[Plugin]:
        return iter(tuple(self._all))

    def __bool__(self) -> bool:
        return bool(self._all)

    def of(self, hub: str, operation: Operation) -> Sequence[Plugin]:
        """Return the plugins to call for such a write."""
        return self._asked.get((hub, operation), self._always)

    def steps(
        self, hub: str, operation: Operation, method: str
    ) -> tuple[tuple[str, ...], tuple[Callable[[Review], None], ...]]:
        """Return the names of the plugins to call for such a write, and that method of each."""
        place = (hub, operation, method) if (hub, operation) in self._asked else ("", "", method)
        found = self._steps.get(place)
        if found is None:
            plugins = self.of(hub, operation)
            names = tuple(plugin.name for plugin in plugins)
            found = names, tuple(getattr(plugin, method) for plugin in plugins)
            self._steps[place] = found
        return found

    def append(self, plugin: Plugin) -> None:
        """Add a plugin, where its name has a place."""
        self.replace([*self._all, plugin])

    def extend(self, plugins: Iterable[Plugin]) -> None:
        """Add plugins, where their names have places."""
        self.replace([*self._all, *plugins])

    def remove(self, plugin: Plugin) -> None:
        """Remove a plugin."""
        self.replace([each for each in self._all if each is not plugin])

    def replace(self, plugins: Iterable[Plugin]) -> None:
        """Replace all plugins."""
        self._all = _in_order(plugins)
        self._choose()

    def _choose(self) -> None:
        self._steps = {}
        concerns: list[tuple[Plugin, Concerns | None]] = [
            (plugin, plugin.concerns if isinstance(plugin, Selective) else None)
            for plugin in self._all
        ]
        named = {hub for _, own in concerns if own is not None for hub in own}
        operations: tuple[Operation, ...] = ("CREATE", "UPDATE", "DELETE", "CONNECT")
        self._always = tuple(plugin for plugin, own in concerns if own is None)
        self._asked = {
            (hub, operation): tuple(
                plugin
                for plugin, own in concerns
                if own is None or operation in own.get(hub, frozenset())
            )
            for hub in named
            for operation in operations
        }


def _in_order(plugins: Iterable[Plugin]) -> list[Plugin]:
    return sorted(plugins, key=lambda plugin: place_of(plugin.name))
