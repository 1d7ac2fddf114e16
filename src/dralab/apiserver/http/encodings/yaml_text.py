"""YAML requests and responses; imported when the first client uses YAML."""

from collections.abc import Sequence
from typing import Any

import orjson
import yaml

from dralab.api.yaml_documents import YamlError, only_document
from dralab.values.json_syntax import MOST_VALUES, may_have_duplicates


class NoYamlError(ValueError):
    """A text that is not YAML, or too large once expanded; `problem` is the parser's message."""

    def __init__(self, error: YamlError | orjson.JSONEncodeError) -> None:
        super().__init__(str(error))
        self.problem = error.problem if isinstance(error, YamlError) else str(error)


def load(data: bytes, *, count_repeats: bool = False) -> tuple[Any, Sequence[str]]:
    """Return the value of a YAML text, with the types of JSON, and repeated keys. NoYamlError.

    `count_repeats` looks for keys that are given twice, and says so in go-yaml's words.
    """
    if data[:1] == b"{":
        # Most of what is called YAML is JSON: kubectl's and client-go's applies are.
        try:
            value = orjson.loads(data)
            if not count_repeats or not may_have_duplicates(data, orjson.dumps(value)):
                return value, ()
        except (orjson.JSONDecodeError, orjson.JSONEncodeError):
            pass
    try:
        found = only_document(data, most=MOST_VALUES)
        # Written and read once more, aliases share nothing: what is stored may be changed in place.
        # Sorted, as Go writes it: complaints of unknown fields come in that order.
        text = orjson.dumps(found.value, option=orjson.OPT_SORT_KEYS)
        return orjson.loads(text), found.already_set
    except (YamlError, orjson.JSONEncodeError) as error:
        raise NoYamlError(error) from error


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
