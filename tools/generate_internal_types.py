"""Write internal_types.json.gz below src/dralab/api/data: upstream's unversioned structs, as facts.

A real server validates the unversioned form of an object, and some of its errors show it: fields
by their names in Go, in the order of the struct, those that are empty included. For each struct
the file has its fields: the name in Go, the name in JSON of the versioned form, and the type.
Needs the Go toolchain (for `go mod download`).

    python tools/generate_internal_types.py
"""

import re
from collections.abc import Iterator

from releases import DATA, source, written

RELEASE = "1.36"
# (package, the one with the versioned form)
PACKAGES = {
    "core": "core/v1",
    "apps": "apps/v1",
    "batch": "batch/v1",
    "networking": "networking/v1",
    "rbac": "rbac/v1",
    "storage": "storage/v1",
}
# What errors show.
ROOTS = (
    "core.PodTemplateSpec",
    "core.PersistentVolumeClaimSpec",
    "core.PersistentVolumeSpec",
    "core.EphemeralContainer",
    "core.NodeSelectorTerm",
    "core.EndpointAddress",
    "batch.PodFailurePolicy",
    "batch.SuccessPolicy",
    "storage.VolumeAttachmentSpec",
    "storage.VolumeNodeResources",
    "storage.CSINodeDriver",
    "networking.ParentReference",
    "rbac.RoleRef",
)
# Names that differ by more than their case.
RENAMED = {
    ("core.PodSecurityContext", "HostNetwork"): "^hostNetwork",
    ("core.PodSecurityContext", "HostPID"): "^hostPID",
    ("core.PodSecurityContext", "HostIPC"): "^hostIPC",
    ("core.PodSecurityContext", "ShareProcessNamespace"): "^shareProcessNamespace",
    ("core.PodSecurityContext", "HostUsers"): "^hostUsers",
}
STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"^type (\w+) ((?:\[\]|map\[).*|[\w.]+)$", re.MULTILINE)
GROUP = re.compile(r"^type \(\n(.*?)^\)", re.MULTILINE | re.DOTALL)
FIELD = re.compile(r"^\t(?:(?P<names>\w+(?:, \w+)*)\s+)?(?P<type>[\w.*\[\]]+)\s*(?P<tag>`[^`]*`)?$")
JSON_NAME = re.compile(r'json:"([^",]*)')

Fields = list[tuple[str, str, str]]


def main() -> None:
    """Download the modules, read the structs, write the file."""
    internal = source(RELEASE) / "pkg/apis"
    versioned = source(RELEASE, "k8s.io/api")
    structs: dict[str, Fields] = {}
    names: dict[str, str] = {}
    for package, folder in PACKAGES.items():
        text = (internal / package / "types.go").read_text()
        tags = _tags((versioned / folder / "types.go").read_text())
        if package == "batch":  # its failure policy has patterns of its own file, too
            tags |= _tags((versioned / "batch/v1/types.go").read_text())
        for name, fields in _structs(text):
            known = tags.get(name, {})
            structs[f"{package}.{name}"] = [
                (field, _in_json(f"{package}.{name}", field, known), _qualified(package, type_))
                for field, type_ in fields
            ]
        names |= {
            f"{package}.{name}": _qualified(package, type_) for name, type_ in NAMED.findall(text)
        }
    kept: dict[str, Fields] = {}
    waiting = list(ROOTS)
    while waiting:
        name = waiting.pop()
        if name in kept:
            continue
        kept[name] = [(go, said, _resolved(type_, names)) for go, said, type_ in structs[name]]
        for _, _, type_ in kept[name]:
            last = re.sub(r"^.*[\]*]", "", type_)
            if last in structs:
                waiting.append(last)
    written(DATA / "internal_types.json.gz", kept)
    print(f"{len(kept)} structs")


def _structs(text: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield each struct with its fields: name in Go (empty if embedded) and type."""
    for name, body in STRUCT.findall(text):
        fields = []
        for line in body.splitlines():
            found = FIELD.match(line.split("//")[0].rstrip())
            if found is None:
                continue
            fields += [(field, found["type"]) for field in (found["names"] or "").split(", ")]
        yield name, fields


def _tags(text: str) -> dict[str, dict[str, str]]:
    """Return the names in JSON, by struct and name in Go."""
    found: dict[str, dict[str, str]] = {}
    for name, body in STRUCT.findall(text):
        for line in body.splitlines():
            field = FIELD.match(line)
            if field and field["names"] and (tag := JSON_NAME.search(field["tag"] or "")):
                found.setdefault(name, {})[field["names"]] = tag[1]
    return found


def _in_json(struct: str, field: str, known: dict[str, str]) -> str:
    if (struct, field) in RENAMED:
        return RENAMED[struct, field]
    if not field or field in known:
        return known.get(field, "")
    for name in known.values():
        if name.lower() == field.lower():
            return name
    print("no name in JSON:", struct, field)
    return field[0].lower() + field[1:]


def _qualified(package: str, type_: str) -> str:
    def named(found: re.Match[str]) -> str:
        name = found[0]
        return name if "." in name or name[0].islower() else f"{package}.{name}"

    return re.sub(r"[\w.]+", named, type_).replace("api.", "core.")


def _resolved(type_: str, names: dict[str, str]) -> str:
    """Return a type with the names of plain types replaced by what they are."""
    key, _, value = type_.partition("]")
    if type_.startswith("map["):
        return f"map[{_resolved(key[4:], names)}]{_resolved(value, names)}"
    for mark in ("[]", "*"):
        if type_.startswith(mark):
            return mark + _resolved(type_.removeprefix(mark), names)
    return _resolved(names[type_], names) if type_ in names else type_


if __name__ == "__main__":
    from usage import print_if_asked

    print_if_asked(__doc__)
    main()
