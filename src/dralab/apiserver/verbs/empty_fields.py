"""Lists and maps that a client sent empty: validation sees them until the object is stored.

Go tells an empty list from one that is not there. A real server stores neither; but who owns a
field, and what an error shows, is found before that. Decoding drops them and remembers where they
were; here they come back for a moment.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final, NamedTuple

from dralab.api.fields import FieldError
from dralab.api.scalar_decoding import EmptyField
from dralab.values.json_types import JsonDict

Path = tuple[str | int, ...]
NOTHING: Final = nullcontext()


class EmptyPlace(NamedTuple):
    """Where an object had an empty list or map; `shown`: JSON always has the field."""

    path: Path
    value: Any
    shown: bool


def located(value: JsonDict, empties: Sequence[EmptyField]) -> Sequence[EmptyPlace]:
    """Return the places of the fields of a decoded object that were sent empty."""
    if not empties:
        return ()
    wanted: dict[int, list[EmptyField]] = {}
    for empty in empties:
        wanted.setdefault(id(empty.holder), []).append(empty)
    found: list[EmptyPlace] = []
    waiting: list[tuple[Path, Any]] = [((), value)]
    while waiting:
        path, item = waiting.pop()
        found += [
            EmptyPlace((*path, empty.name), empty.value, empty.shown)
            for empty in wanted.get(id(item), ())
        ]
        if isinstance(item, dict):
            waiting += [((*path, name), part) for name, part in item.items()]
        elif isinstance(item, list):
            waiting += [((*path, index), part) for index, part in enumerate(item)]
    return found


def holder_of(value: JsonDict, place: EmptyPlace) -> JsonDict | None:
    """Return the struct that has the place now; None if it has gone."""
    found: Any = value
    for step in place.path[:-1]:
        try:
            found = found[step]
        except (LookupError, TypeError):
            return None
    return found if isinstance(found, dict) else None


def restored(
    value: JsonDict, empties: Sequence[EmptyPlace], *, shown: bool = False
) -> AbstractContextManager[None]:
    """Restore inside the fields that were sent empty; with `shown` only those JSON always has."""
    return _restored(value, empties, shown=shown) if empties else NOTHING


@contextmanager
def _restored(value: JsonDict, empties: Sequence[EmptyPlace], *, shown: bool) -> Iterator[None]:
    put: list[tuple[JsonDict, str, EmptyPlace]] = []
    for place in empties:
        holder, name = holder_of(value, place), str(place.path[-1])
        if holder is not None and holder.get(name) is None and (place.shown or not shown):
            holder[name] = place.value
            put.append((holder, name, place))
    try:
        yield
    finally:
        for holder, name, place in put:
            if holder.get(name) is place.value:
                if place.shown:
                    holder[name] = None
                else:
                    del holder[name]


def change_errors(
    value: JsonDict, empties: Sequence[EmptyPlace], problems: Callable[[], list[FieldError]]
) -> list[FieldError]:
    """Return the errors of a changed object, and show empty lists as such.

    An empty list and none are no difference: nothing more is wrong than without them.
    """
    found = problems()
    if not found or not empties:
        return found
    with restored(value, empties):
        again = problems()
    known = [(error.reason, error.field) for error in found]
    shown = []
    for error in again:
        if (error.reason, error.field) in known:
            known.remove((error.reason, error.field))
            shown.append(error)
    return found if known else shown
