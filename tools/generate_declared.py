"""Write declared.json below src/dralab/api/data: what types say that their values must be.

Upstream generates validation from tags such as `+k8s:minimum=1` above fields (KEP-5073). Those of
the API groups below are read from the Go module k8s.io/api, as of the newest release that has them.

    python tools/generate_declared.py
"""

import re
from typing import Any

from releases import DATA, releases, source, written

# Packages, with the kinds whose objects are held against their tags.
PACKAGES = {
    "scheduling/v1alpha2": ("PodGroup", "Workload"),
    "scheduling/v1beta1": ("PodGroup", "Workload"),
    "scheduling/v1alpha3": ("CompositePodGroup", "PodGroup", "Workload"),
    "lifecycle/v1alpha1": ("Eviction", "EvictionRequest"),
}
# Types of objects whose other rules are elsewhere.
PARTS = {"batch/v1": ("JobSchedulingConfiguration",)}
IMPORT = re.compile(r'^\t(\w+) "k8s\.io/api/([\w/]+)"$', re.MULTILINE)
STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
FIELD = re.compile(r"((?:^\t//.*\n)*)^\t(\w+) +([\w.*\[\]]+) +`json:\"([^\",]*)", re.MULTILINE)
TAG = re.compile(r"^\s*// \+(k8s:.*)$", re.MULTILINE)
NAMED = re.compile(r"((?:^//.*\n)*)^type (\w+) string$", re.MULTILINE)
CONST = re.compile(r'^\t\w+ +(\w+) += "([^"]*)"$', re.MULTILINE)
STAGE = re.compile(r'^k8s:(?:alpha|beta)\(since: "[\d.]+"\)=\+')
OPTION = re.compile(r"^k8s:if(Disabled|Enabled)\(\"?(\w+)\"?\)=\+k8s:(.*)$")
# What is no rule about a value.
OTHERS = ("deepcopy-gen", "prerelease", "supports", "validation-gen", "listType=atomic", "openapi")


def main() -> None:
    """Write the file."""
    roots = [source(release, "k8s.io/api") for release in releases()]
    types: dict[str, Any] = {}
    kinds: dict[str, str] = {}
    for package, names in (PACKAGES | PARTS).items():
        files = (root / package / "types.go" for root in roots)
        text = next(path for path in files if path.exists()).read_text()
        found = _types(text, package)
        types |= found
        for name in names if package in PACKAGES else ():
            group, version = package.split("/")
            kinds[f"{group}.k8s.io/{version} {name}"] = f"{package}.{name}"
    reached: dict[str, Any] = {}
    parts = [f"{package}.{name}" for package, names in PARTS.items() for name in names]
    _reach(types, [*kinds.values(), *parts], reached)
    size = written(DATA / "declared.json", {"kinds": kinds, "types": reached})
    print(f"{len(reached)} types; {size} bytes")


def _types(text: str, package: str) -> dict[str, Any]:
    enums = {
        name: sorted(value for kind, value in CONST.findall(text) if kind == name)
        for above, name in NAMED.findall(text)
        if "+k8s:enum" in above
    }
    imported = dict(IMPORT.findall(text))
    found = {}
    for name, body in STRUCT.findall(text):
        fields = {}
        for comment, _, kind, key in FIELD.findall(body):
            if not key:
                continue
            bare = kind.lstrip("*[]")
            rules = _rules(comment)
            if bare in enums:
                rules.append("enum=" + ",".join(enums[bare]))
            holder, _, bare = bare.rpartition(".")
            fields[key] = {"rules": rules, "type": f"{imported.get(holder, package)}.{bare}"} | (
                {"list": True} if "[]" in kind else {} if "*" in kind else {"there": True}
            )
        found[f"{package}.{name}"] = fields
    return found


def _rules(comment: str) -> list[str]:
    tags = [STAGE.sub("", tag.split(" #")[0]).strip() for tag in TAG.findall(comment)]
    rules = [OPTION.sub(_with_gate, tag).removeprefix("k8s:") for tag in tags]
    return [rule for rule in rules if not rule.startswith(OTHERS) and rule != "enum"]


def _with_gate(option: re.Match[str]) -> str:
    when, gate, rule = option.groups()
    return f"{rule} {'!' if when == 'Disabled' else ''}{gate}"


def _reach(types: dict[str, Any], names: list[str], reached: dict[str, Any]) -> None:
    """Keep the types that are used, and of their fields, in order, those that say anything."""
    for name in names:
        if name in reached or name not in types:
            continue
        reached[name] = kept = []
        for key, field in types[name].items():
            _reach(types, [field["type"]], reached)
            known = field["type"] in types
            if field["rules"] or known:
                parts = field if known else {k: v for k, v in field.items() if k != "type"}
                kept.append({"name": key, **parts})


if __name__ == "__main__":
    from usage import print_if_asked

    print_if_asked(__doc__)
    main()
