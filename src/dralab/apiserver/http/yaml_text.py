"""YAML requests and responses; imported when the first client uses YAML."""

from typing import Any, Final

import orjson
import yaml

from dralab.api.yaml_documents import YamlError, single

MOST: Final = 300_000
"""Scalars, lists and mappings of a body; one of 3 MiB that people wrote has half of that."""


class NoYamlError(ValueError):
    """A text that is not YAML, or too large once expanded."""


def load(data: bytes) -> Any:
    """Return the value of a YAML text, with the types of JSON. NoYamlError."""
    if data[:1] == b"{":
        # Most of what is called YAML is JSON: kubectl's and client-go's applies are.
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError:
            pass
    try:
        # Written and read once more, aliases share nothing: what is stored may be changed in place.
        return orjson.loads(orjson.dumps(single(data, most=MOST)))
    except (YamlError, orjson.JSONEncodeError) as error:
        raise NoYamlError(str(error)) from error


def dump(value: Any) -> bytes:
    """Return a value as YAML, keys sorted and long texts folded as a server does."""
    text: str = yaml.dump(value, Dumper=Dumper, sort_keys=True, allow_unicode=True, width=80)
    return text.encode()


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
