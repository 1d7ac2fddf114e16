"""Assignability of types with type parameters, as in cel-go's checker.

A `Bindings` maps parameters to types; it is extended on success and left alone on failure.
"""

from collections.abc import Sequence

from dralab.cel.types import DYN, CelType

Bindings = dict[CelType, CelType]

NULLABLE = frozenset({"opaque", "struct", "any", "duration", "timestamp", "null"})
WILDCARDS = frozenset({"dyn", "any", "error"})


def assignable(
    bindings: Bindings, given: Sequence[CelType], wanted: Sequence[CelType]
) -> Bindings | None:
    """Return the bindings under which the given types fit the wanted ones, or None."""
    if len(given) != len(wanted):
        return None
    found = dict(bindings)
    if all(_fits(found, left, right) for left, right in zip(given, wanted, strict=True)):
        return found
    return None


def substituted(
    bindings: Bindings,
    type_: CelType,
    *,
    free: bool = True,
    known: dict[int, tuple[CelType, CelType]] | None = None,
) -> CelType:
    """Return a type with its parameters replaced; unless `free`, unbound ones become dyn.

    `known` remembers answers by identity while the bindings stay as they are: the types of
    nested literals share their parts.
    """
    # Only parameters are ever bound; hashing anything deeper would take its whole depth.
    while type_.kind == "param":
        bound = bindings.get(type_)
        if bound is None:
            return type_ if free else DYN
        type_ = bound
    if not type_.params:
        return type_
    if known is not None and id(type_) in known:
        return known[id(type_)][1]
    params = tuple(substituted(bindings, inner, free=free, known=known) for inner in type_.params)
    found = type_._replace(params=params)
    if known is not None:
        # The key's object is kept, so that its identity is not given to another.
        known[id(type_)] = (type_, found)
    return found


def more_general(first: CelType, second: CelType) -> CelType:
    """Return the wider of two types which are known to fit each other."""
    if second.kind == "null":
        return first
    return first if _wider(first, second) else second


def _wider(first: CelType, second: CelType) -> bool:
    if first.kind in {"dyn", "any", "param"}:
        return True
    if second.kind in {"dyn", "any", "param"} or first.kind != second.kind:
        return False
    if first.kind == "type":
        return True
    if first.params and len(first.params) == len(second.params) and first.name == second.name:
        return all(map(_wider, first.params, second.params))
    return first == second


def _fits(bindings: Bindings, given: CelType, wanted: CelType) -> bool:
    if wanted.kind == "param":
        valid, known = _substitution(bindings, given, wanted)
        if valid:
            return True
        if known:
            return False
    if given.kind == "param":
        return _substitution(bindings, wanted, given)[0]
    if given.kind in WILDCARDS or wanted.kind in WILDCARDS:
        return True
    if given.kind == "null":
        return wanted.kind in NULLABLE
    if wanted.kind == "null":
        return given.kind in NULLABLE
    if given.kind == "type":
        return wanted.kind == "type"
    if given.kind != wanted.kind or given.name != wanted.name:
        return False
    if len(given.params) != len(wanted.params):
        return False
    return all(
        _fits(bindings, left, right)
        for left, right in zip(given.params, wanted.params, strict=True)
    )


def _substitution(bindings: Bindings, type_: CelType, parameter: CelType) -> tuple[bool, bool]:
    """Return whether a parameter may stand for a type, and whether it already stood for one."""
    if type_ == parameter:
        return True, True
    known = bindings.get(parameter)
    if known is not None:
        if type_ == known:
            return True, True
        if _fits(bindings, type_, known):
            wider = more_general(type_, known)
            if not _refers(bindings, parameter, wider):
                bindings[parameter] = wider
            return True, True
        return False, True
    if _refers(bindings, parameter, type_):
        return False, False
    bindings[parameter] = type_
    return True, False


def _refers(bindings: Bindings, parameter: CelType, type_: CelType) -> bool:
    """Return whether a parameter occurs in a type, directly or through what is bound."""
    if parameter == type_:
        return True
    if type_.kind == "param":
        known = bindings.get(type_)
        return known is not None and _refers(bindings, parameter, known)
    return any(_refers(bindings, parameter, inner) for inner in type_.params)
