"""Small checks that several parts of a pod share."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from dralab.api import fields
from dralab.api.core.addresses import address_problems, each, port_name_problems, port_problems
from dralab.api.fields import FieldError
from dralab.values import names
from dralab.values.json_types import JsonObject

NOTHING: Final[JsonObject] = {}
MOST_SECONDS: Final = 2**31 - 1
NOT_NEGATIVE: Final = "must be greater than or equal to 0"
MODE: Final = "must be a number between 0 and 0777 (octal), both inclusive"
WINDOWS: Final = "windows"


def choice(holder: JsonObject, name: str, known: Sequence[str], path: str) -> list[FieldError]:
    """Return whether a field that must be there is none of the known values."""
    value = holder.get(name)
    if value in known:
        return []
    if not value:
        return [fields.required(f"{path}.{name}")]
    return [fields.not_supported(f"{path}.{name}", value, known, ordered=True)]


def option(holder: JsonObject, name: str, known: Sequence[str], path: str) -> list[FieldError]:
    """Return whether a field that may be absent is none of the known values."""
    value = holder.get(name)
    if value is None or value in known:
        return []
    return [fields.not_supported(f"{path}.{name}", value, known)]


def not_negative(holder: JsonObject, name: str, path: str) -> list[FieldError]:
    """Return whether a number is below zero."""
    value = holder.get(name) or 0
    return [fields.invalid_value(f"{path}.{name}", value, NOT_NEGATIVE)] if value < 0 else []


def mode(holder: JsonObject, name: str, path: str) -> list[FieldError]:
    """Return whether a number is not the permissions of a file."""
    value = holder.get(name) or 0
    return [] if 0 <= value <= 0o777 else [fields.invalid_value(f"{path}.{name}", value, MODE)]


def label(text: str, path: str) -> list[FieldError]:
    """Return why a text is not a DNS label."""
    return [] if names.is_label(text) else each(path, text, names.label_problems(text))


def subdomain(text: str, path: str) -> list[FieldError]:
    """Return why a text is not a DNS subdomain."""
    return each(path, text, names.subdomain_problems(text))


def qualified(text: str, path: str) -> list[FieldError]:
    """Return why a text is not a qualified name."""
    return [] if names.is_qualified(text) else each(path, text, names.qualified_problems(text))


def address(text: str, path: str) -> list[FieldError]:
    """Return why a text is not an IP address."""
    return each(path, text, address_problems(text))


def port(value: Any, path: str) -> list[FieldError]:
    """Return why a number is not a port, or a text not the name of one."""
    problems = port_name_problems(value) if isinstance(value, str) else port_problems(value)
    return each(path, value, problems)


def containers_of(spec: JsonObject, path: str) -> Iterator[tuple[JsonObject, str]]:
    """Yield all containers of a pod with their paths, the first to run first."""
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(kind) or ()):
            yield container, f"{path}.{kind}[{index}]"
