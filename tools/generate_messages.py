"""Write messages.json.gz and go_types.json.gz below src/dralab/api/data: Go's types, as facts.

For each message: field numbers, JSON names and types, and what Go does with a value that is not
there. Numbers and types come from the `generated.proto` files of the public Go modules, the
rest from the struct tags beside them. The second file has the names that Go gives to the types
of plain fields, which errors of decoding show. Needs the Go toolchain (for `go mod download`).

    python tools/generate_messages.py
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from releases import DATA, releases, source, written

MODULES = (
    "k8s.io/api",
    "k8s.io/apimachinery",
    "k8s.io/apiextensions-apiserver",
    "k8s.io/kube-aggregator",
)
# What a server is by default comes first; the other releases add what they have beside it.
FIRST = "1.36"
# Beside the types of the OpenAPI documents: what all of them are made of.
ALWAYS = "k8s.io.apimachinery.pkg."
LEFT_OUT = "testapigroup"
PACKAGE = re.compile(r"^package ([\w.]+);", re.MULTILINE)
MESSAGE = re.compile(r"^message (\w+) \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
FIELD = re.compile(
    r"^\s*(?:(?P<label>optional|repeated) (?P<type>[\w.]+)|map<(?P<key>\w+), (?P<value>[\w.]+)>)"
    r" (?P<name>\w+) = (?P<number>\d+);",
    re.MULTILINE,
)
STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
TAGGED = re.compile(
    r"^\s*(?P<left>[\w.*\[\] ]+?)\s+`(?P<tags>[^`]*protobuf:\"[^`]*)`", re.MULTILINE
)
JSON_TAG = re.compile(r'json:"([^"]*)"')
PROTOBUF_TAG = re.compile(r'protobuf:"\w+,(\d+),')

Field = list[str]
GO_TYPES: dict[str, dict[str, str]] = {}


def main() -> None:
    """Download the modules, read their messages, write the file."""
    messages: dict[str, dict[str, Field]] = {}
    packages = _packages()
    for release in sorted(releases(), key=lambda each: each != FIRST):
        for folder in (source(release, module) for module in MODULES):
            for proto in sorted(folder.rglob("generated.proto")):
                for name, fields in _messages(proto):
                    package = name.rpartition(".")[0]
                    if package not in packages and not name.startswith(ALWAYS):
                        break
                    if LEFT_OUT in package:
                        break
                    known = messages.setdefault(name, {})
                    for number, field in fields.items():
                        known.setdefault(number, field)
    kept = {name: types for name, types in GO_TYPES.items() if name in messages}
    written(DATA / "messages.json.gz", {"versions": [*releases().values()], "messages": messages})
    written(DATA / "go_types.json.gz", kept)
    print(f"{len(messages)} messages of {', '.join(releases())}")


def _packages() -> set[str]:
    """Return the packages of the types in the OpenAPI documents, as messages name them."""
    found = set()
    for release in releases():
        path = source(release) / "api/openapi-spec/swagger.json"
        for name in json.loads(path.read_bytes())["definitions"]:
            package = name.removeprefix("io.k8s.").rpartition(".")[0]
            found.add("k8s.io." + package.replace("-", "_"))
    return found


def _messages(proto: Path) -> Iterator[tuple[str, dict[str, Field]]]:
    text = proto.read_text()
    found = PACKAGE.search(text)
    assert found is not None, proto  # noqa: S101 - a generator may stop
    package = found[1]
    tags = _tags(proto.parent)
    for name, body in MESSAGE.findall(text):
        fields = {}
        for field in FIELD.finditer(body):
            tag = tags.get((name, field["number"]))
            found = fields[field["number"]] = _field(package, field, tag)
            if tag and (type_ := _go_type(package, tag[0], found[1])):
                GO_TYPES.setdefault(f"{package}.{name}", {}).setdefault(found[0], type_)
        yield f"{package}.{name}", fields


def _field(package: str, field: re.Match[str], tag: tuple[str, str] | None) -> Field:
    """Return JSON name, type, and letters for what else there is to know (see api.messages)."""
    flags = ""
    if field["key"]:
        type_ = f"{field['key']},{_type(package, field['value'])}"
        flags += "m"
    else:
        type_ = _type(package, field["type"])
        flags += "l" if field["label"] == "repeated" else ""
    name = field["name"]
    if tag is not None:
        left, options = tag
        json_name, *rest = options.split(",")
        name = json_name or name
        # An embedded struct without a name of its own in JSON is part of its parent.
        if json_name == "" and ("inline" in rest or " " not in left.strip()):
            flags += "i"
        words = left.split()
        flags += "p" if words[-1].startswith("*") else ""
        flags += "e" if "omitempty" in rest else ""
        flags += "z" if "omitzero" in rest else ""
    return [name, type_, flags]


def _go_type(package: str, declared: str, scalar: str) -> str:
    """Return Go's name of the type of a plain field; empty where it is that of the scalar."""
    words = declared.split()
    if len(words) < 2 or ("." in scalar and "," not in scalar):
        return ""
    shown = re.sub(
        r"(?P<alias>\w+\.)?(?P<name>\w+)",
        lambda part: _qualified(package, part["alias"] or "", part["name"]),
        "".join(words[1:]).replace("*", ""),
    )
    return shown if "." in shown else ""


def _qualified(package: str, alias: str, name: str) -> str:
    if alias:
        return re.sub(r"^[a-z]+(?=v\d)", "", alias) + name
    return name if name[0].islower() else f"{package.rpartition('.')[2]}.{name}"


def _type(package: str, name: str) -> str:
    if name.startswith("."):
        return name[1:]
    return name if name[0].islower() else f"{package}.{name}"


def _tags(folder: Path) -> dict[tuple[str, str], tuple[str, str]]:
    """Return what Go says of each field: its declaration, and the options of its JSON tag."""
    found = {}
    for path in sorted(folder.glob("*.go")):
        if path.name.endswith(("_test.go", "generated.pb.go")):
            continue
        for name, body in STRUCT.findall(path.read_text()):
            for line in TAGGED.finditer(body):
                number = PROTOBUF_TAG.search(line["tags"])
                options = JSON_TAG.search(line["tags"])
                if number and options:
                    found[name, number[1]] = (line["left"], options[1])
    return found


if __name__ == "__main__":
    from usage import print_if_asked

    print_if_asked(__doc__)
    main()
