"""The user of a trial: applies, scales and deletes, and retries refused requests."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final, Protocol

from dralab.api.status import ApiError
from dralab.apiserver.server import ApiServer
from dralab.kernel.clock import SECOND
from dralab.objects.metadata import is_deleting, metadata_of
from dralab.runtime.client import Resource
from dralab.runtime.local import LocalClient
from dralab.runtime.resources import resource_of
from dralab.runtime.simulated import SimulatedEngine
from dralab.testing import history as kinds
from dralab.testing.history import TrialHistory
from dralab.testing.trial_scenario import ScriptStep
from dralab.values.json_types import JsonDict

# A step waits so long for what it needs: an object that is not there yet, a kind.
PATIENCE: Final = 60 * SECOND
AGAIN: Final = SECOND
FIRST: Final = ("CustomResourceDefinition", "Namespace", "PriorityClass", "DeviceClass", "Node")


class UserSurroundings(Protocol):
    """What the user needs of a trial."""

    engine: SimulatedEngine
    server: ApiServer
    history: TrialHistory
    user: LocalClient
    user_acts: bool
    """Whether what changes now is the work of the user, who notes it."""

    def violated(self, oracle: str, text: str) -> None:
        """Note that something is wrong."""
        ...


class ScriptRunner:
    """Carries out the steps of a script in order: a waiting step delays the next ones."""

    def __init__(self, around: UserSurroundings, patience: int = PATIENCE) -> None:
        self._around = around
        self._patience = patience
        self._failed = ""
        self._left: list[ScriptStep] = []

    def create(self, objects: Iterable[JsonDict]) -> None:
        """Create the initial objects. ApiError: the server refuses an object."""
        for body in sorted(objects, key=lambda obj: _rank(str(obj.get("kind")))):
            self._apply(body)

    def plan(self, steps: Sequence[ScriptStep]) -> int:
        """Schedule the steps; return the time of the last one."""
        when: int = self._around.engine.clock.now()
        for step in steps:
            when += step.after
            if step.verb != "wait":
                self._left.append(step)
                self._around.engine.at(when, partial(self._try, step, when + self._patience))
        return when + SECOND

    def is_done(self) -> bool:
        """Return whether all steps are done, or one has failed."""
        return bool(self._failed) or not self._left

    def check(self) -> None:
        """Report a failed step."""
        if self._failed:
            self._around.violated("script", self._failed)

    def _try(self, step: ScriptStep, until: int) -> None:
        around = self._around
        if self._failed:
            return
        if self._left[0] is not step:
            around.engine.after(AGAIN, partial(self._try, step, until + AGAIN))
            return
        around.user_acts = True
        try:
            self._do(step)
        except ApiError as error:
            if around.engine.clock.now() < until:
                around.engine.after(AGAIN, partial(self._try, step, until))
                return
            self._failed = f"{step}: {error.message}"
            around.violated("script", self._failed)
            return
        finally:
            around.user_acts = False
        self._left.pop(0)
        around.history.add(kinds.USER, kinds.STEP, str(step), around.server.store.revision)

    def _do(self, step: ScriptStep) -> None:
        if step.verb == "apply":
            for body in step.objects:
                self._apply(body)
            return
        resource = resource_of(self._around.server.resources.kinds, step.target)
        namespace = step.target.get("namespace") or "default" if resource.namespaced else ""
        client = self._around.user
        for name in self._names(resource, namespace, step.target):
            if step.verb == "delete":
                client.delete(resource, name, namespace, options=step.patch or None)
            elif step.verb == "scale":
                client.patch(resource, name, {"spec": step.patch}, namespace)
            else:
                client.patch(resource, name, step.patch, namespace, subresource=step.subresource)

    def _names(self, resource: Resource, namespace: str, target: JsonDict) -> list[str]:
        if target.get("name"):
            return [target["name"]]
        found = self._around.user.list(
            resource, namespace, label_selector=target.get("selector", "")
        )
        names = sorted(str(metadata_of(obj).get("name")) for obj in found.items)
        if not names:
            text = f"{target.get('kind')} with {target.get('selector')}: none is there"
            raise ApiError("NotFound", text)
        return names[: target.get("most") or len(names)]

    def _apply(self, body: JsonDict) -> None:
        """Create or update an object."""
        resource = resource_of(self._around.server.resources.kinds, body)
        metadata: Any = metadata_of(body)
        namespace = (metadata.get("namespace") or "default") if resource.namespaced else ""
        client = self._around.user
        try:
            made = client.create(resource, body, namespace)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            if is_deleting(client.get(resource, metadata["name"], namespace)):
                # As a user does who waits for a deletion: what is applied to it would go with it.
                text = f"{error.message}: it is being deleted (finalizers)"
                raise ApiError("Conflict", text) from None
            client.patch(
                resource, metadata["name"], body, namespace,
                type="apply", field_manager="user", force=True,
            )  # fmt: skip
            return
        # The status of a definition is the server's; generators write an empty one into the file.
        if body.get("kind") == "CustomResourceDefinition":
            return
        if body.get("status") and made.get("status") != body["status"]:
            status = {**(made.get("status") or {}), **body["status"]}
            client.update(resource, {**made, "status": status}, subresource="status")


def _rank(kind: str) -> int:
    return FIRST.index(kind) if kind in FIRST else len(FIRST)
