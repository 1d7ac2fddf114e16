"""Small checks that several parts of a pod share."""

from collections.abc import Iterator
from typing import Any, Final

from dralab.api import fields
from dralab.api.core.addresses import port_name_problems, port_problems
from dralab.api.fields import FieldError
from dralab.values.json_types import JsonObject

NOTHING: Final[JsonObject] = {}
WINDOWS: Final = "windows"


def mode(value: int, path: str) -> list[FieldError]:
    """A number is the permissions of a file."""
    why = "must be a number between 0 and 0777 (octal), both inclusive"
    return [] if 0 <= value <= 0o777 else [fields.invalid_value(path, value, why)]


def port(value: Any, path: str) -> list[FieldError]:
    """A number is a port, or a text the name of one."""
    problems = port_name_problems(value) if isinstance(value, str) else port_problems(value)
    return fields.each(path, value, problems)


def containers_of(spec: JsonObject, path: str) -> Iterator[tuple[JsonObject, str]]:
    """Yield all containers of a pod with their paths, the first to run first."""
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(kind) or ()):
            yield container, f"{path}.{kind}[{index}]"
