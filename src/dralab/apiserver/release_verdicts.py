"""What a server of a release would refuse, drop or warn of, found by a server in memory.

Every version that the release has is served there, and the feature gates are those that it has on
by default, or those given: what needs a switch in a real cluster is said.
"""

import copy
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, Literal

from dralab.api.gated_fields import gates_at
from dralab.api.kinds import Kind, Kinds, releases_with
from dralab.api.resource.features import Features, default_of
from dralab.api.scalar_decoding import DecodingError
from dralab.api.status import ApiError
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore
from dralab.apiserver.verbs.state.options import WriteOptions
from dralab.apiserver.verbs.state.typed_objects import typed
from dralab.apiserver.verbs.upkeep.migration import lost_fields
from dralab.kernel.clock import WallClock
from dralab.values.api_versions import is_stable
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass

Sort = Literal["refused", "dropped", "warned", "unknown"]
# What a server writes itself, and what is written through its own path.
OWN: Final = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "uid")
FIRST: Final = frozenset({"Namespace", "CustomResourceDefinition"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseVerdict:
    """One part of an object that a release refuses, drops or warns of.

    `field` is the path of what is dropped. `unknown` objects are of kinds that no one defines.
    """

    sort: Sort
    message: str
    field: str = ""

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


class ReleaseJudge:
    """A server of a release, without access control, that judges one object after the other."""

    def __init__(self, release: str, features: Features | None = None) -> None:
        self.release = release
        self.features = default_of(release) if features is None else features
        self._server = ApiServer(
            MemoryStore(),
            clock=WallClock(),
            kinds=Kinds.standard(release=release),
            features=self.features,
            service_accounts=False,
        )

    def judged(self, objects: Sequence[JsonDict]) -> list[list[ReleaseVerdict]]:
        """Return the errors of each object; definitions and namespaces count for all."""
        found: dict[int, list[ReleaseVerdict]] = {}
        order = sorted(range(len(objects)), key=lambda n: objects[n].get("kind") not in FIRST)
        for number in order:
            found[number] = list(self._verdicts(copy.deepcopy(objects[number])))
        return [found[number] for number in range(len(objects))]

    def _verdicts(self, value: JsonDict) -> Iterator[ReleaseVerdict]:
        api_version, name = str(value.get("apiVersion", "")), str(value.get("kind", ""))
        kind = self._server.resources.kinds.of_object(api_version, name)
        if kind is None:
            yield self._unserved(api_version, name)
            return
        if kind.custom is None and not is_stable(kind.version):
            switch = f"--runtime-config={api_version}=true"
            yield ReleaseVerdict(
                sort="warned", message=f"{api_version} is off by default: it needs {switch}"
            )
        if kind.deprecation:
            yield ReleaseVerdict(sort="warned", message=kind.deprecation)
        metadata = value.setdefault("metadata", {})
        for part in OWN:
            metadata.pop(part, None)
        namespace = self._namespace(metadata) if kind.namespaced else ""
        given = copy.deepcopy(value)
        context = self._server.resources.context
        scope = context.scope(options=WriteOptions(validation="Ignore"))
        try:
            unknown = set(typed(context.scope(), kind, copy.deepcopy(value))[1])
            stored = self._server.resources.create(kind, value, namespace, scope)
        except (ApiError, DecodingError) as error:
            if not isinstance(error, ApiError) or error.reason != "AlreadyExists":
                yield ReleaseVerdict(sort="refused", message=str(error))
            return
        for path in sorted(unknown):
            text = f"{self.release} has no such field"
            yield ReleaseVerdict(sort="dropped", field=path, message=text)
        for text in scope.warnings:
            yield ReleaseVerdict(sort="warned", message=text)
        shown = context.rules.from_hub(kind, stored.value)
        given.pop("status", None)
        for path in lost_fields(given, shown):
            if path not in unknown:
                yield self._dropped(kind, path)

    def _namespace(self, metadata: JsonDict) -> str:
        """Return the namespace of an object, and create it."""
        namespace = str(metadata.get("namespace") or "default")
        kind = self._server.resources.kind("", "v1", "namespaces")
        with suppress(ApiError):
            self._server.resources.create(kind, {"metadata": {"name": namespace}})
        return namespace

    def _unserved(self, api_version: str, name: str) -> ReleaseVerdict:
        group = api_version.rpartition("/")[0]
        others = [
            kind.api_version
            for kind in self._server.resources.kinds
            if kind.group == group and kind.kind == name
        ]
        known = releases_with(api_version, name)
        if not known and not others:
            where = f"{api_version} {name}"
            text = f"{where} is not a kind of any release, and no document defines it"
            return ReleaseVerdict(sort="unknown", message=text)
        text = f"{self.release} does not serve {api_version} {name}"
        if known:
            span = known[0] if len(known) == 1 else f"{known[0]} to {known[-1]}"
            text += f": that is in {span}"
        if others:
            text += f"; use {', '.join(others)}"
        return ReleaseVerdict(sort="refused", message=text)

    def _dropped(self, kind: Kind, path: str) -> ReleaseVerdict:
        needed = gates_at(self.release, kind.api_version, kind.kind, path)
        off = [gate for gate in needed if gate not in self.features]
        text = f"{self.release} does not keep it"
        if off:
            text = f"needs the feature gate {' and '.join(off)}, off in {self.release}"
        return ReleaseVerdict(sort="dropped", field=path, message=text)
