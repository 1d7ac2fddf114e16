"""Small checks that several parts of a pod share."""

from collections.abc import Iterator
from typing import Any, Final

from dralab.api import fields
from dralab.api.core.addresses import address_problems, port_name_problems, port_problems
from dralab.api.fields import FieldError
from dralab.api.rules import at_least, between, text
from dralab.values.json_types import JsonObject

NOTHING: Final[JsonObject] = {}
MOST_SECONDS: Final = 2**31 - 1
WINDOWS: Final = "windows"

not_negative: Final = at_least(0)
mode: Final = between(0, 0o777, "must be a number between 0 and 0777 (octal), both inclusive")
address: Final = text(address_problems)


def port(value: Any, path: str) -> list[FieldError]:
    """A number is a port, or a text the name of one."""
    problems = port_name_problems(value) if isinstance(value, str) else port_problems(value)
    return fields.each(path, value, problems)


def containers_of(spec: JsonObject, path: str) -> Iterator[tuple[JsonObject, str]]:
    """Yield all containers of a pod with their paths, the first to run first."""
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(kind) or ()):
            yield container, f"{path}.{kind}[{index}]"
