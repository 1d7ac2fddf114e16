"""The kinds: names, paths, verbs, and which collections share a store.

Kinds that no code reasons about are data. The standard ones are read from `data/kinds.json`
(written by `tools/generate_kinds.py`); custom resources and older device APIs are added to a
`Kinds` at run time. What an object of a kind must look like is left to schemas.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from functools import lru_cache
from typing import Any, Final

from dralab.api.releases import MIXED, newest, table, versions
from dralab.values.api_versions import is_stable, preference
from dralab.values.records import dataclass

# What `MIXED` serves on request beside the versions that every server serves.
MIXED_GROUPS: Final = frozenset({"resource.k8s.io", "scheduling.k8s.io"})
ALL_VERBS: Final = (
    "create", "delete", "deletecollection", "get", "list", "patch", "update", "watch",
)  # fmt: skip
NO_FIELDS: Final[tuple[str, ...]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Subresource:
    """A path below an object: `pods/status`, `deployments/scale`.

    `group` and `version` are empty if its kind belongs to the parent's.
    """

    name: str
    kind: str
    verbs: tuple[str, ...]
    group: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kind:
    """One kind in one version, as one collection: `apps/v1 Deployment`, `deployments`.

    `hub` names the store ("apps/deployments"; "pods" in the core group): versions of one group
    with the same plural share it, and so do the two event APIs. `generation` tells whether
    metadata.generation counts changes of the spec. `fields` are the field selectors beyond
    metadata.name and metadata.namespace. `custom` is whatever defines a kind that is no
    built-in one (None for those); with `strategic` it once was one, and takes strategic merge
    patches all the same. `added` are fields that a built-in kind has on this server beyond those
    of Kubernetes: schemas by path, as `api.extended` reads them. `deprecation` is what the server
    says of every request for it. `release` is that of Kubernetes whose kind it is. `api_version`
    is that of its objects.
    """

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    singular: str
    verbs: tuple[str, ...] = ALL_VERBS
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: Mapping[str, Subresource] = field(default_factory=dict)
    fields: tuple[str, ...] = NO_FIELDS
    generation: bool = False
    hub: str = ""
    list_kind: str = ""
    custom: Any = None
    strategic: bool = False
    added: Mapping[tuple[str, ...], Mapping[str, Any]] = field(default_factory=dict)
    deprecation: str = ""
    release: str = MIXED
    api_version: str = field(init=False)

    def __post_init__(self) -> None:
        # Asked for many times with each request.
        version = f"{self.group}/{self.version}" if self.group else self.version
        object.__setattr__(self, "api_version", version)

    @property
    def patches_strategically(self) -> bool:
        """Whether it takes strategic merge patches: custom resources do not."""
        return self.custom is None or self.strategic

    @property
    def resource(self) -> str:
        """The plural as errors spell it: `deployments.apps`, `pods`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def path(self) -> str:
        """The root of its URLs."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @property
    def has_status(self) -> bool:
        """Whether status is written through its own path alone."""
        return "status" in self.subresources


class Kinds:
    """A registry of kinds that can grow and shrink while other threads use it.

    `changes` counts the changes, for caches of what was derived from it.

    >>> Kinds.standard().find("apps", "v1", "deployments").kind
    'Deployment'
    """

    def __init__(self, kinds: Iterable[Kind] = (), release: str = MIXED) -> None:
        self.release = release
        self.changes = 0
        self._by_path: dict[tuple[str, str, str], Kind] = {}
        self._by_kind: dict[tuple[str, str], Kind] = {}
        self._groups: dict[str, dict[str, dict[str, Kind]]] = {}
        for kind in kinds:
            self.add(kind)

    @classmethod
    def standard(cls, *, also: Iterable[str] | None = None, release: str = MIXED) -> "Kinds":
        """Return the kinds of a server of a release.

        `also` names versions it serves on request, as `group/version` or
        `group/version/plural`; None stands for all of them.
        """
        wanted = None if also is None else frozenset(also)
        kinds = (
            kind
            for kind, on_request in _standard(release)
            if not on_request
            or wanted is None
            or kind.api_version in wanted
            or f"{kind.api_version}/{kind.plural}" in wanted
        )
        return cls(kinds, release)

    def add(self, kind: Kind) -> None:
        """Add a kind; one with the same group, version and plural is replaced."""
        self._by_path[kind.group, kind.version, kind.plural] = kind
        self._by_kind[kind.api_version, kind.kind] = kind
        versions = self._groups.setdefault(kind.group, {})
        if kind.version not in versions and kind.custom is not None:
            # Those that come later, with another definition, may be preferred.
            versions[kind.version] = {}
            ordered = sorted(versions, key=preference)
            self._groups[kind.group] = versions = {each: versions[each] for each in ordered}
        versions.setdefault(kind.version, {})[kind.plural] = kind
        self.changes += 1

    def remove(self, group: str, version: str, plural: str) -> None:
        """Forget a kind; KeyError if it is not known."""
        kind = self._by_path.pop((group, version, plural))
        if self._by_kind.get((kind.api_version, kind.kind)) is kind:
            del self._by_kind[kind.api_version, kind.kind]
        versions = self._groups[group]
        del versions[version][plural]
        if not versions[version]:
            del versions[version]
        if not versions:
            del self._groups[group]
        self.changes += 1

    def find(self, group: str, version: str, plural: str) -> Kind:
        """Return a kind by its path; KeyError if it is not served."""
        return self._by_path[group, version, plural]

    def get(self, group: str, version: str, plural: str) -> Kind | None:
        """Return a kind by its path, or None."""
        return self._by_path.get((group, version, plural))

    def within(self, group: str, version: str, plural: str) -> Kind | None:
        """Return a kind by its path for a component in the server's own process, or None.

        It reads a collection in the version that it is made for, even where that is not served.
        """
        path = group, version, plural
        if (served := self._by_path.get(path)) is not None:
            return served
        found = _known().get(path)
        if found is None or not any(kind.hub == found.hub for kind in self):
            return None
        return found

    def of_object(self, api_version: str, kind: str) -> Kind | None:
        """Return the kind of an object with that apiVersion and kind, or None."""
        return self._by_kind.get((api_version, kind))

    def of_object_within(self, api_version: str, kind: str) -> Kind | None:
        """Return the kind of an object for a component in the server's own process, or None."""
        found = self.of_object(api_version, kind)
        if found is None:
            named = (each for each in _known().values() if each.kind == kind)
            for each in named:
                if each.api_version == api_version:
                    found = self.within(each.group, each.version, each.plural)
        return found

    def groups(self) -> list[str]:
        """Return the groups, the core one ("") first, in the order in which they came."""
        return list(self._groups)

    def versions(self, group: str) -> list[str]:
        """Return the versions of a group, the preferred one first; empty if it is unknown."""
        return list(self._groups.get(group, ()))

    def is_left_to_others(self, group: str) -> bool:
        """Whether a group has no built-in kind, so that another server may serve it.

        A real server answers what it does not know of such a group like an unknown path.
        """
        return bool(group) and all(kind.custom for kind in self if kind.group == group)

    def in_version(self, group: str, version: str) -> list[Kind]:
        """Return the kinds of one version, sorted by plural."""
        found = dict(self._groups.get(group, {}).get(version, {}))
        return [found[plural] for plural in sorted(found)]

    def __iter__(self) -> Iterator[Kind]:
        return iter(list(self._by_path.values()))

    def __len__(self) -> int:
        return len(self._by_path)


def releases_with(api_version: str, kind: str) -> list[str]:
    """Return the releases that have a kind in a version, the oldest first.

    >>> releases_with("resource.k8s.io/v1", "ResourceClaim")[0]
    '1.34'
    """
    return [
        release
        for release in reversed([*versions()])
        if any(
            known.api_version == api_version and known.kind == kind
            for known, _ in _standard(release)
        )
    ]


@lru_cache(maxsize=1)
def _known() -> Mapping[tuple[str, str, str], Kind]:
    return {(kind.group, kind.version, kind.plural): kind for kind, _ in _standard(MIXED)}


@lru_cache(maxsize=8)
def _standard(release: str) -> tuple[tuple[Kind, bool], ...]:
    """Return the kinds of a release, each with whether it is served on request only."""
    content = table("kinds.json", release)
    own: dict[str, Mapping[str, Any]] = content["kinds"]
    # What the newest release added to a stable version.
    later: dict[str, Mapping[str, Any]] = {}
    if release == MIXED:
        later = table("kinds.json", newest())["kinds"]
    places: dict[str, list[str]] = {place: [] for place in content["versions"]}
    for key in {**own, **later}:
        place = key.rpartition("/")[0]
        if place in places and (key in own or is_stable(place.rpartition("/")[2])):
            places[place].append(key)
    entries = []
    for place, keys in places.items():
        group, _, version = place.rpartition("/")
        stable = is_stable(version)
        if release == MIXED and not stable and group not in MIXED_GROUPS:
            continue
        for key in sorted(keys):
            facts = {"group": group, "version": version, "plural": key.rpartition("/")[2]}
            entry = own.get(key) or later[key]
            kind = kind_of({**facts, **entry, "release": release})
            entries.append((kind, not stable or key not in own))
    return tuple(entries)


def kind_of(entry: Mapping[str, Any], custom: Any = None) -> Kind:
    """Return the kind that an entry of `kinds.json` describes."""
    name: str = entry["kind"]
    return Kind(
        group=entry["group"],
        version=entry["version"],
        kind=name,
        plural=entry["plural"],
        singular=entry.get("singular") or name.lower(),
        namespaced=entry["namespaced"],
        verbs=tuple(entry.get("verbs") or ALL_VERBS),
        short_names=tuple(entry.get("shortNames") or ()),
        categories=tuple(entry.get("categories") or ()),
        subresources={
            sub: Subresource(
                name=sub,
                kind=facts["kind"],
                verbs=tuple(facts["verbs"]),
                group=facts.get("group", ""),
                version=facts.get("version", ""),
            )
            for sub, facts in (entry.get("subresources") or {}).items()
        },
        fields=tuple(entry.get("fields") or ()),
        generation=entry.get("generation", False),
        hub=entry.get("hub") or "/".join(filter(None, (entry["group"], entry["plural"]))),
        list_kind=entry.get("listKind") or f"{name}List",
        custom=custom,
        strategic=entry.get("strategic", False),
        deprecation=entry.get("deprecation", ""),
        release=entry.get("release", MIXED),
    )
