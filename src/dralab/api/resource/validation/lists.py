"""Lists and sets with a limit: beyond it one error is reported and items are not checked."""

from collections.abc import Callable, Sequence
from typing import Any

from dralab.api.fields import FieldError, duplicate, too_many

ItemErrors = Callable[[Any, str], list[FieldError]]


def list_errors(
    items: Sequence[Any] | None, limit: int | None, path: str, item_errors: ItemErrors
) -> list[FieldError]:
    """Return the errors of a list: too many items, or the errors of each."""
    if not items:
        return []
    if limit is not None and len(items) > limit:
        return [too_many(path, len(items), limit)]
    found: list[FieldError] = []
    for index, item in enumerate(items):
        found += item_errors(item, f"{path}[{index}]")
    return found


def set_errors(
    items: Sequence[Any] | None,
    limit: int | None,
    path: str,
    item_errors: ItemErrors,
    key: Callable[[Any], Any] = lambda item: item,
) -> list[FieldError]:
    """Return the errors of a list whose items have unique keys."""
    if not items:
        return []
    found = list_errors(items, limit, path, item_errors)
    if limit is not None and len(items) > limit:
        return found
    keys = [key(item) for item in items]
    if len(set(keys)) == len(keys):
        return found
    seen: set[Any] = set()
    for index, value in enumerate(keys):
        if value in seen:
            found.append(duplicate(f"{path}[{index}]", value))
        seen.add(value)
    return found
