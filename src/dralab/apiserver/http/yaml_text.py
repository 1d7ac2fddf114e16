"""YAML in and out of the server; imported when the first client speaks it."""

import math
from typing import Any, Final

import orjson
import yaml

MAX_NODES: Final = 1_000_000
MAX_DEPTH: Final = 200


class NoYamlError(ValueError):
    """A text that is no YAML, or too much of it."""


def load(data: bytes) -> Any:
    """Return what a YAML text says, as JSON would have it. NoYamlError."""
    if data[:1] == b"{":
        # Most of what is called YAML is JSON: kubectl's and client-go's applies are.
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError:
            pass
    try:
        _check_depth(data)
        value = yaml.load(data, Loader=Loader)  # noqa: S506 - a loader of plain values
        return _Expansion().of(value)
    except (yaml.YAMLError, ValueError, RecursionError, UnicodeDecodeError) as error:
        raise NoYamlError(" ".join(str(error).split())) from error


def dump(value: Any) -> bytes:
    """Return a value as YAML, keys sorted as a server does."""
    text: str = yaml.dump(value, Dumper=Dumper, sort_keys=True, allow_unicode=True, width=10_000)
    return text.encode()


def _check_depth(data: bytes) -> None:
    """Raise ValueError where a text nests too deeply.

    Its events come one by one; the loader in C recurses, and a long row of brackets would end
    the whole process.
    """
    depth = 0
    for event in yaml.parse(data, Loader=Loader):
        if isinstance(event, (yaml.SequenceStartEvent, yaml.MappingStartEvent)):
            depth += 1
            if depth > MAX_DEPTH:
                raise ValueError("the document is too large or too deep")
        elif isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
            depth -= 1


class _Expansion:
    """Copies a YAML value so that aliases share nothing: a few lines can stand for gigabytes."""

    def __init__(self) -> None:
        self.left = MAX_NODES

    def of(self, value: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise ValueError("the document is too large or too deep")
        if isinstance(value, dict):
            return {_key(key): self.of(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.of(item) for item in value]
        if value is None or isinstance(value, (str, bool)):
            return value
        if isinstance(value, int) and value.bit_length() < 64:
            return value
        if isinstance(value, (int, float)) and math.isfinite(number := _float(value)):
            # As in JSON: what no integer of 64 bits can hold is a float.
            return number
        raise ValueError(f"a value that JSON does not have: {str(value)[:40]}")


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _key(key: Any) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, bool):
        return "true" if key else "false"
    return "null" if key is None else str(key)


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # C if built
    """Plain YAML values; times stay text, as in JSON."""


Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]  # C if built
    """YAML as Go writes it: text that could be read as something else in double quotes."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - whatever it is
        """Never write aliases: clients in other languages may not read them."""
        return True


def _text(dumper: Any, value: str) -> Any:
    plain = dumper.resolve(yaml.ScalarNode, value, (True, False)) == "tag:yaml.org,2002:str"
    style = "|" if "\n" in value else None if plain and value else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


Dumper.add_representer(str, _text)
