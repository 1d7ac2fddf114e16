"""Write definitions*.json.gz and descriptions.json.gz below src/dralab/api/data: how objects look.

The structure of every kind (fields, types, which are required, how lists merge) comes from the
OpenAPI document in the Go module k8s.io/kubernetes: the newest release whole, the older ones as
differences. Descriptions are kept apart, since only `explain` wants them, in the newest wording.

    python tools/generate_schemas.py
"""

import json
from typing import Any

from releases import DATA, chain, releases, source, written

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
    """Read the definitions of each release, write the files."""
    tables: dict[str, Any] = {}
    descriptions: dict[str, dict[str, str]] = {}
    for release in releases():
        path = source(release) / "api/openapi-spec/swagger.json"
        document = json.loads(path.read_bytes())["definitions"]
        kinds = {
            "/".join(filter(None, (gvk["group"], gvk["version"], gvk["kind"]))): name
            for name, raw in document.items()
            for gvk in raw.get("x-kubernetes-group-version-kind", ())
        }
        definitions = {name: _definition(name, raw) for name, raw in document.items()}
        tables[release] = {"kinds": kinds, "definitions": definitions}
        for name, raw in document.items():
            texts = descriptions.setdefault(name, {})
            texts.setdefault("", raw.get("description", ""))
            for field, fact in raw.get("properties", {}).items():
                texts.setdefault(field, fact.get("description", ""))
    for release, content in chain(tables).items():
        size = written(DATA / f"definitions-{release}.json.gz", content)
        print(f"{release}: {len(tables[release]['definitions'])} definitions, {size} bytes")
    print(f"descriptions: {written(DATA / 'descriptions.json.gz', descriptions)} bytes")


def _definition(name: str, raw: dict[str, Any]) -> dict[str, Any]:
    if name in SPECIAL:
        return SPECIAL[name]
    found = _stripped(raw)
    for field, fact in raw.get("properties", {}).items():
        below = found.setdefault("properties", {})[field] = _stripped(fact)
        if (name, field) in DEFAULTS:
            below["default"] = DEFAULTS[name, field]
    return found


def _stripped(raw: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if "type" in raw:
        found["type"] = raw["type"]
    if "$ref" in raw:
        found["$ref"] = raw["$ref"].removeprefix("#/definitions/")
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


if __name__ == "__main__":
    from usage import print_if_asked

    print_if_asked(__doc__)
    main()
