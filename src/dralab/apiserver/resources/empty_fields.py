"""Lists and maps that a client sent empty: they count until an object is stored.

Go tells an empty list from one that is not there. A real server stores neither; but who owns a
field, and what an error shows, is found before that. Decoding drops them and remembers where they
were; here they come back for a moment.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from dralab.api.fields import FieldError
from dralab.api.scalar_decoding import EmptyField


@contextmanager
def restored(empties: Sequence[EmptyField], *, shown: bool = False) -> Iterator[None]:
    """Put what was sent empty back for a while; with `shown` only what JSON always has."""
    put: list[EmptyField] = []
    for empty in empties:
        if empty.holder.get(empty.name) is None and (empty.shown or not shown):
            empty.holder[empty.name] = empty.value
            put.append(empty)
    try:
        yield
    finally:
        for empty in put:
            if empty.holder.get(empty.name) is empty.value:
                if empty.shown:
                    empty.holder[empty.name] = None
                else:
                    del empty.holder[empty.name]


def change_errors(
    empties: Sequence[EmptyField], problems: Callable[[], list[FieldError]]
) -> list[FieldError]:
    """Return what is wrong with a changed object, and show empty lists as such.

    An empty list and none are no difference: nothing more is wrong than without them.
    """
    found = problems()
    if not found or not empties:
        return found
    with restored(empties):
        again = problems()
    known = [(error.reason, error.field) for error in found]
    shown = []
    for error in again:
        if (error.reason, error.field) in known:
            known.remove((error.reason, error.field))
            shown.append(error)
    return found if known else shown
