"""Write src/dralab/api/data/definitions.json.gz and descriptions.json.gz: what objects look like.

The structure of every kind (fields, types, which are required, how lists merge) comes from the
published package `kubernetes-validate`, read as data and never imported: its newest version,
and what the version before it still had. Descriptions are kept apart: only `explain` wants them.

    uv run --with kubernetes-validate==1.37.* python tools/generate_schemas.py
"""

import gzip
import importlib.metadata
import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "src/dralab/api/data"
VERSIONS = ("v1.37.0-local", "v1.36.0-local")
KEPT = ("format", "items", "additionalProperties", "required")
MARKS = {
    "x-kubernetes-list-type": "listType",
    "x-kubernetes-list-map-keys": "listMapKeys",
    "x-kubernetes-map-type": "mapType",
    "x-kubernetes-patch-merge-key": "mergeKey",
}
META = "io.k8s.apimachinery.pkg.apis.meta.v1."
CRD = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."
# Types whose JSON is not what their Go struct looks like.
SPECIAL: dict[str, dict[str, Any]] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": "string", "format": "quantity"},
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"format": "int-or-string"},
    "io.k8s.apimachinery.pkg.runtime.RawExtension": {"type": "object", "free": True},
    META + "FieldsV1": {"type": "object", "free": True},
    CRD + "JSON": {"free": True, "mapType": "atomic"},
    CRD + "JSONSchemaPropsOrArray": {"free": True, "mapType": "atomic"},
    CRD + "JSONSchemaPropsOrBool": {"free": True, "mapType": "atomic"},
    CRD + "JSONSchemaPropsOrStringArray": {"free": True, "mapType": "atomic"},
}
# The defaults that upstream's OpenAPI names; keys of lists depend on the first two.
DEFAULTS: dict[tuple[str, str], Any] = {
    ("io.k8s.api.core.v1.ContainerPort", "protocol"): "TCP",
    ("io.k8s.api.core.v1.ServicePort", "protocol"): "TCP",
}


def main() -> None:
    """Read the package's definitions, write the two files."""
    found = importlib.metadata.distribution("kubernetes-validate")
    root = Path(str(found.locate_file("kubernetes_validate/kubernetes-json-schema")))
    definitions: dict[str, Any] = {}
    descriptions: dict[str, dict[str, str]] = {}
    kinds: dict[str, str] = {}
    for version in VERSIONS:
        source = json.loads((root / version / "_definitions.json").read_bytes())["$defs"]
        for name, raw in sorted(source.items()):
            _add(name, raw, definitions, descriptions)
            for gvk in raw.get("x-kubernetes-group-version-kind", ()):
                key = "/".join(filter(None, (gvk["group"], gvk["version"], gvk["kind"])))
                kinds.setdefault(key, name)
    content = {"kinds": kinds, "definitions": definitions, "later": _later(root)}
    _write(DATA / "definitions.json.gz", content)
    _write(DATA / "descriptions.json.gz", descriptions)
    print(f"{len(definitions)} definitions, {len(kinds)} kinds from {', '.join(VERSIONS)}")


def _later(root: Path) -> dict[str, Any]:
    """Return what the newest version has added: definitions (true) and fields, by definition."""
    newest, before = (
        json.loads((root / version / "_definitions.json").read_bytes())["$defs"]
        for version in VERSIONS
    )
    found: dict[str, Any] = {}
    for name, raw in newest.items():
        if name not in before:
            found[name] = True
            continue
        known = before[name].get("properties", {})
        if added := sorted(set(raw.get("properties", {})) - set(known)):
            found[name] = added
    return found


def _add(
    name: str,
    raw: dict[str, Any],
    definitions: dict[str, Any],
    descriptions: dict[str, dict[str, str]],
) -> None:
    texts = descriptions.setdefault(name, {})
    texts.setdefault("", raw.get("description", ""))
    if name in SPECIAL:
        definitions[name] = SPECIAL[name]
        return
    known = definitions.setdefault(name, _stripped(raw))
    for field, fact in sorted(raw.get("properties", {}).items()):
        texts.setdefault(field, fact.get("description", ""))
        stripped = _stripped(fact)
        if (name, field) in DEFAULTS:
            stripped["default"] = DEFAULTS[name, field]
        known.setdefault("properties", {}).setdefault(field, stripped)


def _stripped(raw: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    kind = raw.get("type")
    if kind is not None:
        found["type"] = kind[0] if isinstance(kind, list) else kind
    if "$ref" in raw:
        found["$ref"] = raw["$ref"].removeprefix("#/$defs/")
    for key in KEPT:
        if key in raw:
            value = raw[key]
            found[key] = _stripped(value) if isinstance(value, dict) else value
    for mark, short in MARKS.items():
        if mark in raw:
            found[short] = raw[mark]
    if "x-kubernetes-patch-strategy" in raw:
        found["strategy"] = raw["x-kubernetes-patch-strategy"].split(",")
    return found


def _write(path: Path, content: Any) -> None:
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False, sort_keys=True)
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    from usage import print_if_asked

    print_if_asked(__doc__)
    main()
