"""The status of ValidatingAdmissionPolicies: warnings of the type checker, for each generation.

Written in a thread, a moment after a policy: a check of ten kinds takes a tenth of a second.
Source: k8s.io/kubernetes `pkg/controller/validatingadmissionpolicystatus`.
"""

import threading

from dralab.api.status import ApiError
from dralab.apiserver.storage import StorageUnavailable
from dralab.apiserver.verbs import writing
from dralab.apiserver.verbs.state.context import Context, key_of
from dralab.objects.metadata import is_deleting, status_of
from dralab.values.json_types import JsonDict

GROUP = "admissionregistration.k8s.io"
PLURAL = "validatingadmissionpolicies"
HUB = f"{GROUP}/{PLURAL}"
MANAGER = "validatingadmissionpolicy-status-controller"


class PolicyStatuses:
    """Writes the statuses of one server's policies."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._lock = threading.Lock()
        self._waiting: dict[str, None] = {}
        self._running = False

    def follow(self) -> None:
        """Check what has not been checked yet, and whatever changes from now on."""
        self.context.rules.observe(HUB, self._changed)
        for stored in self.context.store.list(HUB).items:
            self._changed(None, stored.value)

    def _changed(self, before: JsonDict | None, after: JsonDict | None) -> None:
        del before
        if after is None or is_deleting(after):
            return
        metadata = after["metadata"]
        if status_of(after).get("observedGeneration") == metadata.get("generation"):
            return
        with self._lock:
            self._waiting[metadata["name"]] = None
            if self._running:
                return
            self._running = True
        threading.Thread(target=self._work, name="policy-types", daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._lock:
                name = next(iter(self._waiting), None)
                if name is None:
                    self._running = False
                    return
                del self._waiting[name]
            try:
                self.check(name)
            except (ApiError, StorageUnavailable):
                continue  # it has changed or gone meanwhile, or the disk is full

    def check(self, name: str) -> None:
        """Check a policy, and write its status. ApiError."""
        from dralab.apiserver.access.admission.policies.type_checking import expression_warnings

        kind = self.context.kinds.get(GROUP, "v1", PLURAL)
        if kind is None:
            return
        with self.context.store.lock:
            stored = self.context.own.find(key_of(kind, "", name))
        if stored is None:
            return
        policy = stored.value
        generation = policy["metadata"].get("generation")
        warnings = expression_warnings(policy, self.context.kinds)

        def edit(value: JsonDict) -> JsonDict:
            if value["metadata"].get("generation") == generation:
                value["status"] = {
                    **status_of(value),
                    "observedGeneration": generation,
                    "typeChecking": {"expressionWarnings": warnings} if warnings else {},
                }
            return value

        scope = self.context.own_write(MANAGER)
        writing.change(scope, kind, name, "", edit, subresource="status")
