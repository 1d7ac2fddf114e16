"""Specs of pods that were found good: most pods are copies of few.

All rules of a pod take as long as the rest of its creation, so what was judged is not judged again.
A key stands for everything that the rules read; where it cannot, there is none.
"""

import re
from collections.abc import Callable
from typing import Final

import orjson

from dralab.api.fields import FieldError
from dralab.values.json_types import JsonObject

# The volume that a server adds to each pod has a name by chance.
BY_CHANCE: Final = re.compile(rb"kube-api-access-[a-z0-9]{5}(?=\")")
READ_BY_RULES: Final = (
    "alpha.kubernetes.io", "kubernetes.io/config.mirror", "pod-deletion-cost", "apparmor",
)  # fmt: skip
MOST: Final = 1024
LONGEST: Final = 8192


class KnownSpecs:
    """What was found in good specs: their warnings. Bad ones are judged each time."""

    def __init__(self) -> None:
        self._warnings: dict[bytes, tuple[str, ...]] = {}

    def judged(
        self,
        pod: JsonObject,
        problems: Callable[[], list[FieldError]],
        warnings: Callable[[], list[str]],
    ) -> tuple[list[FieldError], tuple[str, ...]]:
        """Return what is wrong with a pod, and what to warn of where nothing is."""
        key = _key(pod)
        if key is not None and (found := self._warnings.get(key)) is not None:
            return [], found
        if errors := problems():
            return errors, ()
        told = tuple(warnings())
        if key is not None:
            if len(self._warnings) >= MOST:
                self._warnings.clear()
            self._warnings[key] = told
        return [], told


def _key(pod: JsonObject) -> bytes | None:
    annotations = pod["metadata"].get("annotations")
    if annotations and any(part in each for each in annotations for part in READ_BY_RULES):
        return None
    try:
        text = orjson.dumps(pod["spec"])
    except TypeError:
        return None  # a number of over 64 bits
    # The name of a pod is part of those of the claims that are made for it.
    if len(text) > LONGEST or b'"ephemeral' in text:
        return None
    names = set(BY_CHANCE.findall(text))
    return BY_CHANCE.sub(b"*", text) + b"%d" % len(names) if names else text
