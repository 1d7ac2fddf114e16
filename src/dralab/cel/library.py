"""Environments as the API server makes them, and the functions behind every name.

`kubernetes()` is the base environment that all uses in Kubernetes share; `standard()` is plain
CEL. What a device selector may use in addition is in `device`.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from dralab.cel import macros, types, values
from dralab.cel.environment import Environment
from dralab.cel.functions import (
    arithmetic,
    authorizer,
    lists,
    mathematics,
    network,
    optionals,
    patches,
    resources,
    strings,
)
from dralab.cel.types import Overload, read_overload


def _not_equal(left: Any, right: Any) -> bool:
    return not values.equals(left, right)


# Operators that need more than their values (`&&`, `?:` and the like) are part of evaluation.
FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    **arithmetic.FUNCTIONS,
    **strings.FUNCTIONS,
    **lists.FUNCTIONS,
    **network.FUNCTIONS,
    **resources.FUNCTIONS,
    **optionals.FUNCTIONS,
    **mathematics.FUNCTIONS,
    **authorizer.FUNCTIONS,
    **patches.FUNCTIONS,
    "_==_": values.equals,
    "_!=_": _not_equal,
    "@in": values.contains,
    "_[_]": values.index,
    "_?._": values.optional_field,
    "_[?_]": values.optional_index,
}


def overloads(*texts: str) -> Mapping[str, tuple[Overload, ...]]:
    """Return the overloads that texts of one signature per line declare, by function."""
    found: dict[str, list[Overload]] = {}
    for line in _lines(texts):
        overload = read_overload(line)
        found.setdefault(overload.function, []).append(overload)
    return {name: tuple(several) for name, several in found.items()}


def _lines(texts: Iterable[str]) -> Iterable[str]:
    for text in texts:
        for line in text.splitlines():
            if line.strip():
                yield line


@lru_cache(maxsize=1)
def standard() -> Environment:
    """Return the environment of the CEL language definition, without any extension."""
    return Environment(
        functions=overloads(arithmetic.SIGNATURES, strings.STANDARD_SIGNATURES),
        macros=macros.STANDARD,
        homogeneous=False,
        checks_literals=False,
    )


@lru_cache(maxsize=1)
def extended() -> Environment:
    """Return an environment with every known extension, including Kubernetes' own."""
    base = kubernetes()
    return Environment(
        functions={
            **base.functions,
            **overloads(
                mathematics.SIGNATURES,
                lists.INCLUDES_SIGNATURES,
                "string_reverse string.reverse() -> string\n"
                "list_reverse list(A).reverse() -> list(A)",
            ),
        },
        macros=macros.ALL | macros.MATHEMATICS | macros.BLOCKS,
        homogeneous=False,
        checks_literals=False,
        quoted_names=True,
    )


@lru_cache(maxsize=1)
def served() -> Environment:
    """Return the environment of the API server's own rules, which have no `cel.bind`.

    Source: k8s.io/apiserver `pkg/cel/environment/base.go`; device selectors add bindings.
    """
    return kubernetes().without(macros.BINDINGS)


@lru_cache(maxsize=1)
def kubernetes() -> Environment:
    """Return the environment of device selectors, everything introduced up to 1.36."""
    return Environment(
        functions=overloads(
            arithmetic.SIGNATURES,
            strings.STANDARD_SIGNATURES,
            strings.SIGNATURES,
            lists.KUBERNETES_SIGNATURES,
            lists.SIGNATURES,
            lists.SET_SIGNATURES,
            network.SIGNATURES,
            resources.QUANTITY_SIGNATURES,
            resources.SEMVER_SIGNATURES,
            resources.FORMAT_SIGNATURES,
            optionals.SIGNATURES,
            optionals.EXTRA_SIGNATURES,
            optionals.INSERT_SIGNATURES,
        ),
        macros=macros.ALL,
    )


def of_objects() -> Environment:
    """Return what conditions on objects may use: `object` and `oldObject`, which may be null."""
    return kubernetes().extended(
        variables={"object": types.DYN, "oldObject": types.DYN},
        result=(types.BOOL, types.DYN),
        result_words="bool",
    )
