"""A cache of valid pods: most pods are copies of a few.

All rules of a pod take as long as the rest of its creation, so what was judged is not judged again.
"""

from collections.abc import Callable

from dralab.api.core.pod_rules.facts import PodFacts
from dralab.api.fields import FieldError
from dralab.values.remembering import KnownValues


class KnownPods:
    """The warnings about valid pods, by their facts. Invalid ones are validated each time."""

    def __init__(
        self,
        problems: Callable[[PodFacts], list[FieldError]],
        warnings: Callable[[PodFacts], list[str]],
    ) -> None:
        self._problems, self._tell = problems, warnings
        self._warnings = KnownValues[bytes, tuple[str, ...]]()

    def judged(self, pod: PodFacts) -> tuple[list[FieldError], tuple[str, ...]]:
        """Return the errors of a pod, and what to warn of where nothing is."""
        key = pod.key()
        if (found := self._warnings.get(key)) is not None:
            return [], found
        if errors := self._problems(pod):
            return errors, ()
        told = tuple(self._tell(pod))
        self._warnings.keep(key, told)
        return [], told
