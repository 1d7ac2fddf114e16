"""The schemas of objects: fields, types, and how lists and maps merge.

The structure of the standard kinds is data of each release (`data/definitions-*.json.gz`, written
by `tools/generate_schemas.py`), read when first asked for; custom resources bring their own.
Checking an object against it is left to the server.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Literal

from dralab.api.releases import DEFAULT, MIXED, merged, newest, unpacked, versions

OBJECT_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
NOTHING: Final[Mapping[str, Any]] = {}
NO_TEXTS: Final[tuple[str, ...]] = ()

ListType = Literal["", "atomic", "set", "map"]
# Made from templates, many from one.
COPIED: Final = frozenset({"Pod", "ResourceClaim"})


class Schema:
    """The structure of one value.

    `name` is the definition it comes from, or nothing. `type` is one of object, array, string,
    integer, number, boolean, or nothing if more than one is possible. `format` refines it:
    int32, int64, double, byte (base64), date-time, quantity, int-or-string. `item` is what a
    list holds, `values` what a map of arbitrary keys holds, `properties` the fields of a
    struct. `free` says that anything goes below.

    `list_type` and `map_type` say how the parts are told apart (and so who may own them):
    "atomic" means not at all; nothing means atomic for lists and granular for maps.

    >>> pod = Schemas.standard().schema_of("v1", "Pod")
    >>> pod.at("spec", "containers").list_map_keys
    ('name',)
    """

    __slots__ = (
        "__weakref__",
        "_definitions",
        "_item",
        "_properties",
        "_raw",
        "_values",
        "default",
        "enum",
        "format",
        "free",
        "list_map_keys",
        "list_type",
        "map_type",
        "name",
        "nullable",
        "patch_merge_key",
        "patch_strategy",
        "required",
        "type",
    )

    def __init__(
        self, raw: Mapping[str, Any], definitions: "Schemas | None", name: str = ""
    ) -> None:
        self._raw = raw
        self._definitions = definitions
        self._properties: Mapping[str, Schema] | None = None
        self._item: Schema | None = None
        self._values: Schema | None = None
        self.name = name
        self.type: str = raw.get("type", "")
        self.format: str = raw.get("format", "")
        self.free: bool = raw.get("free", False)
        self.nullable: bool = raw.get("nullable", False)
        self.default: Any = raw.get("default")
        self.enum: Sequence[Any] = raw.get("enum", NO_TEXTS)
        self.required: tuple[str, ...] = tuple(raw.get("required", NO_TEXTS))
        self.list_type: ListType = raw.get("listType", "")
        self.list_map_keys: tuple[str, ...] = tuple(raw.get("listMapKeys", NO_TEXTS))
        self.map_type: str = raw.get("mapType", "")
        self.patch_strategy: tuple[str, ...] = tuple(raw.get("strategy", NO_TEXTS))
        self.patch_merge_key: str = raw.get("mergeKey", "")

    @property
    def release(self) -> str:
        """The release whose definitions it is linked with."""
        return MIXED if self._definitions is None else self._definitions.release

    @property
    def copied(self) -> bool:
        """Whether many objects of the kind are equal but for their names."""
        return self.name.startswith("io.k8s.") and self.name.rpartition(".")[2] in COPIED

    def shows(self, field: str) -> bool:
        """Return whether an object shows a field of its struct that is empty and always there."""
        found = self._definitions
        return found is None or field not in found.later_in(self.name)

    def __repr__(self) -> str:
        return f"Schema({self.name or self.type or 'anything'})"

    @property
    def properties(self) -> Mapping[str, "Schema"]:
        """The fields of a struct, by name."""
        found = self._properties
        if found is None:
            raw = self._raw.get("properties", NOTHING)
            found = {name: self._made(field) for name, field in raw.items()}
            self._properties = found
        return found

    @property
    def item(self) -> "Schema | None":
        """What a list holds."""
        if self._item is None and "items" in self._raw:
            self._item = self._made(self._raw["items"])
        return self._item

    @property
    def values(self) -> "Schema | None":
        """What a map of arbitrary keys holds; None for structs."""
        if self._values is None:
            raw = self._raw.get("additionalProperties")
            if isinstance(raw, dict):
                self._values = self._made(raw)
        return self._values

    @property
    def is_struct(self) -> bool:
        """Whether its fields are known by name, and no others are allowed."""
        return self.type == "object" and not self.free and "additionalProperties" not in self._raw

    def field(self, name: str) -> "Schema | None":
        """Return what is below a name: a field of a struct, or a value of a map."""
        return self.properties.get(name) or self.values

    def at(self, *path: str) -> "Schema":
        """Return what is below a path of names; KeyError if the path leaves the schema."""
        found = self
        for name in path:
            below = found.field(name) or (found.item.field(name) if found.item else None)
            if below is None:
                raise KeyError(".".join(path))
            found = below
        return found

    def _made(self, raw: Mapping[str, Any]) -> "Schema":
        reference = raw.get("$ref")
        if reference is None:
            return Schema(raw, self._definitions)
        if self._definitions is None:
            raise KeyError(reference)
        if len(raw) == 1:
            return self._definitions.definition(reference)
        # The field says more than its type does, as "this struct is owned as a whole".
        target = self._definitions.raw(reference)
        return Schema({**target, **raw}, self._definitions, reference)


class Schemas:
    """The definitions of the standard kinds, linked when they are first asked for."""

    def __init__(
        self, content: Mapping[str, Any], later: Mapping[str, Any] = NOTHING, release: str = MIXED
    ) -> None:
        self.release = release
        self._kinds: Mapping[str, str] = content["kinds"]
        self._raw: Mapping[str, Any] = content["definitions"]
        self._later = later
        self._made: dict[str, Schema] = {}

    @classmethod
    @lru_cache(maxsize=8)
    def standard(cls, release: str = MIXED) -> "Schemas":
        """Return the definitions of a release.

        `MIXED` has those of the newest, and what it dropped since the default one.
        """
        if release != MIXED:
            return cls(merged(release, _part), release=release)
        content = _part(newest())
        known = [*versions()]
        return cls(content, _mixed(content, map(_part, known[1 : known.index(DEFAULT) + 1])))

    def schema_of(self, api_version: str, kind: str) -> Schema | None:
        """Return the schema of a kind; None if there is none."""
        name = self._kinds.get(f"{api_version}/{kind}")
        return None if name is None else self.definition(name)

    def definition(self, name: str) -> Schema:
        """Return a definition by its name; KeyError if there is none."""
        found = self._made.get(name)
        if found is None:
            found = self._made[name] = Schema(self._raw[name], self, name)
        return found

    def raw(self, name: str) -> Mapping[str, Any]:
        """Return a definition as the data file has it; not to be changed."""
        found: Mapping[str, Any] = self._raw[name]
        return found

    def shown(self, name: str) -> Mapping[str, Any]:
        """Return a definition without the fields that `later_in` names; not to be changed."""
        raw, later = self.raw(name), self.later_in(name)
        if not later:
            return raw
        known = raw["properties"]
        return {**raw, "properties": {k: v for k, v in known.items() if k not in later}}

    def later_in(self, name: str) -> Collection[str]:
        """Return the fields of a definition that the newest release added, for `MIXED`."""
        found: Collection[str] = self._later.get(name, NO_TEXTS)
        return found

    def name_of(self, api_version: str, kind: str) -> str | None:
        """Return the name of a kind's definition; None if there is none."""
        return self._kinds.get(f"{api_version}/{kind}")

    def names(self) -> Sequence[str]:
        """Return the names of all definitions, sorted."""
        return sorted(self._raw)


def custom(structural: Mapping[str, Any] | None) -> Schema:
    """Return the schema of a custom resource from its CRD version's `openAPIV3Schema`.

    Without one, or for what `x-kubernetes-preserve-unknown-fields` covers, anything goes.
    """
    return part(structural or {"x-kubernetes-preserve-unknown-fields": True}, whole=True)


def part(structural: Mapping[str, Any], *, whole: bool = False) -> Schema:
    """Return a structural schema as a `Schema`; a `whole` object also has its type and metadata."""
    raw = _structural(structural)
    if not whole:
        return Schema(raw, None)
    raw["type"] = "object"
    raw["properties"] = {
        **raw.get("properties", {}),
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"$ref": OBJECT_META},
    }
    return Schema(raw, Schemas.standard())


@lru_cache(maxsize=1)
def descriptions() -> Mapping[str, Mapping[str, str]]:
    """Return what each definition (under "") and each of its fields is for, as explain shows."""
    found: Mapping[str, Mapping[str, str]] = unpacked("descriptions.json.gz")
    return found


def _part(release: str) -> dict[str, Any]:
    found: dict[str, Any] = unpacked(f"definitions-{release}.json.gz")
    return found


def _mixed(content: dict[str, Any], older: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Add to the newest definitions what the older ones had; return the fields that are new.

    `older` are the differences of each release to the next newer one.
    """
    definitions: dict[str, Any] = content["definitions"]
    later: dict[str, list[str]] = {}
    for patch in older:
        for name, change in patch["definitions"].items():
            if change is None:
                continue
            known = definitions.setdefault(name, change)
            for field, fact in change.get("properties", NOTHING).items():
                if fact is None:
                    later.setdefault(name, []).append(field)
                else:
                    known["properties"].setdefault(field, fact)
        for key, named in patch["kinds"].items():
            if named is not None:
                content["kinds"].setdefault(key, named)
    return later


MARKS: Final = {
    "x-kubernetes-list-type": "listType",
    "x-kubernetes-list-map-keys": "listMapKeys",
    "x-kubernetes-map-type": "mapType",
    "x-kubernetes-patch-merge-key": "mergeKey",
    "x-kubernetes-preserve-unknown-fields": "free",
}
SAME: Final = ("type", "format", "required", "enum", "default", "nullable")


def _structural(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return a structural schema of a CRD in the form of the data file."""
    found = {key: raw[key] for key in SAME if key in raw}
    found |= {short: raw[mark] for mark, short in MARKS.items() if mark in raw}
    if "x-kubernetes-patch-strategy" in raw:
        found["strategy"] = raw["x-kubernetes-patch-strategy"].split(",")
    if raw.get("x-kubernetes-int-or-string"):
        found.setdefault("format", "int-or-string")
        found.pop("type", None)
    if "properties" in raw:
        found["properties"] = {key: _structural(item) for key, item in raw["properties"].items()}
    if isinstance(raw.get("items"), Mapping):
        found["items"] = _structural(raw["items"])
    additional = raw.get("additionalProperties")
    if isinstance(additional, Mapping):
        found["additionalProperties"] = _structural(additional)
    elif additional:
        found["additionalProperties"] = {"free": True}
    if raw.get("x-kubernetes-embedded-resource"):
        found["properties"] = {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"$ref": OBJECT_META},
            **found.get("properties", {}),
        }
    return found
