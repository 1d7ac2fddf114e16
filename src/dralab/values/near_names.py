"""The error for a name that does not exist: which one may be meant, and where all are listed."""

from collections.abc import Collection
from typing import Final

# More names than these are not read in an error.
FEW: Final = 20


def near_names(name: str, known: Collection[str]) -> list[str]:
    """Return at most two names that may be meant.

    >>> near_names("las2d", ["fgd", "rounds:las", "rounds:las-2d"])
    ['rounds:las-2d', 'rounds:las']
    >>> near_names("other", ["fgd"])
    []
    """
    from difflib import get_close_matches  # only for who mistyped

    # A name that others precede with a family, such as `rounds:`, is meant without it, too.
    whole = {each.rpartition(":")[2].lower(): each for each in reversed([*known])}
    whole |= {each.lower(): each for each in known}
    close = get_close_matches(name.lower(), list(whole), n=4)
    return list(dict.fromkeys(whole[each] for each in close))[:2]


def did_you_mean(name: str, known: Collection[str]) -> str:
    """Return the question that follows a sentence, or nothing.

    >>> did_you_mean("fdg", ["fgd", "easy"])
    "; did you mean 'fgd'?"
    """
    near = near_names(name, known)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else ""


def not_one_of(name: str, known: Collection[str], listed_by: str = "") -> str:
    """Return the error for an unknown name; `listed_by` is where the known ones are listed.

    >>> not_one_of("c", ["a", "b"])
    "'c' is not one of a, b"
    >>> not_one_of("n7x", [f"n{number}" for number in range(30)], "`dralab lists them`")
    "'n7x' is not one of the 30 names; did you mean 'n7' or 'n27'? See `dralab lists them`"
    """
    hint = did_you_mean(name, known)
    if len(known) <= FEW or not listed_by:
        return f"{name!r} is not one of {', '.join(known)}{hint}"
    return f"{name!r} is not one of the {len(known)} names{hint or '.'} See {listed_by}"
