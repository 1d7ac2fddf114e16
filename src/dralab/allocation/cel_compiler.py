"""CEL for the rules of resource.k8s.io: the compiler that `api.resource` uses."""

from functools import lru_cache

from dralab.api.resource.features import Features
from dralab.api.resource.rules import Compiled
from dralab.cel import CelFeatures, check, environment


def compiled(expression: str, features: Features, *, derived: bool) -> Compiled:
    """Return whether a new expression compiles under these gates, and the most it can cost.

    >>> compiled("device.driver == 'd'", frozenset(), derived=False).error is None
    True
    """
    return _compiled(
        expression,
        "DRAConsumableCapacity" in features,
        "DRAListTypeAttributes" in features,
        derived,
    )


# The same selectors come again with every claim of a template.
@lru_cache(maxsize=4096)
def _compiled(expression: str, consumable: bool, lists: bool, derived: bool) -> Compiled:  # noqa: FBT001 - the key of the cache
    verdict = check(
        expression,
        environment(
            CelFeatures(consumable_capacity=consumable, list_type_attributes=lists),
            "new",
            "derived attribute" if derived else "selector",
        ),
    )
    return Compiled(verdict.max_cost, verdict.problems[0] if verdict.problems else None)
