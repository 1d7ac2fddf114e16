"""Puts the verbs together over a store, and the first objects into it."""

from collections.abc import Sequence
from typing import Any, Final

from dralab.api.kinds import Kinds
from dralab.apiserver.admission.chain import Admission
from dralab.apiserver.admission.namespaces import NamespaceLifecycle
from dralab.apiserver.resources.context import Context, key_of
from dralab.apiserver.resources.rules import Rules
from dralab.apiserver.resources.server import Resources
from dralab.apiserver.storage import Store
from dralab.kernel.clock import Clock
from dralab.kernel.randomness import Randomness

NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")


def new_resources(
    store: Store,
    clock: Clock,
    randomness: Randomness,
    *,
    kinds: Kinds | None = None,
    admission: Sequence[Admission] | None = None,
    bootstrap: bool = True,
) -> Resources:
    """Return the verbs of a server over `store`.

    `kinds` defaults to all that are known; `admission` to `built_in_admission()`. With
    `bootstrap` the namespaces that every cluster has are made where they are missing.
    """
    found = kinds if kinds is not None else Kinds.standard()
    rules = Rules.standard()
    rules.adopt(found)
    context = Context(
        store=store,
        clock=clock,
        randomness=randomness,
        kinds=found,
        rules=rules,
        admission=tuple(built_in_admission() if admission is None else admission),
    )
    resources = Resources(context)
    if bootstrap:
        make_first_objects(resources)
    return resources


def built_in_admission() -> list[Admission]:
    """Return the admission that every server has, in its order."""
    return [NamespaceLifecycle()]


def make_first_objects(resources: Resources) -> None:
    """Make what every cluster has from the start, where it is missing."""
    context = resources.context
    first: list[tuple[str, str, str, dict[str, Any]]] = [
        ("", "v1", "namespaces", {"metadata": {"name": name}}) for name in NAMESPACES
    ]
    with context.store.lock, context.store.batch():
        for group, version, plural, value in first:
            kind = resources.kind(group, version, plural)
            if context.store.get(key_of(kind, "", value["metadata"]["name"])) is None:
                resources.create(kind, value)
