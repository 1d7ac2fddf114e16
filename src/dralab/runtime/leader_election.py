"""Leader election: the holder of a lease is active until the lease is released or expires.

Source: client-go's leader election, with its times and its rule for clocks: a lease has expired
when it has not changed for its duration by the watcher's own clock, whatever its timestamps.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, Literal

from dralab.api.status import ApiError
from dralab.kernel.clock import SECOND, rfc3339_micro
from dralab.runtime.client import Client, find
from dralab.runtime.engine import Engine
from dralab.runtime.resources import LEASES
from dralab.values.json_types import JsonDict

NAMESPACE: Final = "kube-system"
DURATION: Final = 15 * SECOND
RENEW_DEADLINE: Final = 10 * SECOND
RETRY: Final = 2 * SECOND
LANE: Final = "lease"

logger = logging.getLogger(__name__)


class Leadership:
    """Tries to hold the lease `name` as `identity`, and notifies when that begins and ends.

    `begin` and `lost` are events of the engine. After `lost` it keeps trying.
    """

    def __init__(  # noqa: PLR0917 - who, for what, and whom to tell
        self,
        engine: Engine,
        client: Client,
        name: str,
        identity: str,
        begin: Callable[[], None],
        lost: Callable[[], None],
    ) -> None:
        self.engine = engine
        self.client = client
        self.name = name
        self.identity = identity
        self.holds = False
        self._begin = begin
        self._lost = lost
        # What the lease said when it last changed, and when that was by the own clock.
        self._seen: tuple[str, str] | None = None
        self._seen_at = 0
        self._renewed = 0
        self._stopped = False

    def start(self) -> None:
        """Begin to try."""
        self.engine.soon(self._try)

    def stop(self) -> None:
        """Release the lease, so that the next holder need not wait; errors are ignored."""
        self._stopped = True
        if not self.holds:
            return
        self.holds = False
        try:
            lease = self.client.get(LEASES, self.name, NAMESPACE)
            if lease["spec"].get("holderIdentity") == self.identity:
                now = rfc3339_micro(self.engine.clock.now())
                spec = {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
                self.client.update(LEASES, {**lease, "spec": {**spec, "renewTime": now}})
        except ApiError as error:
            logger.debug("cannot release the lease %s: %s", self.name, error)

    def may_act(self) -> bool:
        """Whether the lease is still valid by the clock: it may have expired unnoticed.

        In any thread: ask before each write.
        """
        return self.holds and self.engine.clock.now() - self._renewed < RENEW_DEADLINE

    def _try(self) -> None:
        if not self._stopped:
            # The lease counts from before it was asked for, however late the answer is read.
            began = self.engine.clock.now()
            # In a lane of its own: the holder's other requests may wait in a long queue.
            self.engine.offload(self._attempt, partial(self._tried, began), lane=LANE)

    def _tried(self, began: int, result: Literal[True, False] | Exception) -> None:
        if self._stopped:
            return
        self.engine.after(RETRY, self._try)
        if result is True:
            self._renewed = began
            # By then there has been another success, or none; an answer may also never come.
            self.engine.at(began + RENEW_DEADLINE, self._check)
            if not self.holds:
                self.holds = True
                self._begin()
        elif result is False:
            self._end()
        else:
            logger.debug("lease %s: %s", self.name, result)

    def _check(self) -> None:
        if not self._stopped and self.engine.clock.now() - self._renewed >= RENEW_DEADLINE:
            self._end()

    def _end(self) -> None:
        if self.holds:
            self.holds = False
            self._lost()

    def _attempt(self) -> Literal[True, False]:
        """Acquire or renew the lease; False if another holds it. ApiError."""
        now = self.engine.clock.now()
        stamp = rfc3339_micro(now)
        spec: JsonDict = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": DURATION // SECOND,
            "renewTime": stamp,
        }
        lease = find(self.client, LEASES, self.name, NAMESPACE)
        if lease is None:
            body: JsonDict = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self.name, "namespace": NAMESPACE},
                "spec": {**spec, "acquireTime": stamp, "leaseTransitions": 0},
            }
            self.client.create(LEASES, body, NAMESPACE)
            return True
        old = lease["spec"]
        holder = old.get("holderIdentity") or ""
        if (holder, old.get("renewTime")) != self._seen:
            self._seen, self._seen_at = (holder, old.get("renewTime")), now
        if holder not in {"", self.identity}:
            duration = (old.get("leaseDurationSeconds") or 0) * SECOND
            if now - self._seen_at < duration:
                return False
        if holder != self.identity:
            spec["acquireTime"] = stamp
            spec["leaseTransitions"] = (old.get("leaseTransitions") or 0) + 1
        # Others that saw it expire are refused because of the resourceVersion.
        self.client.update(LEASES, {**lease, "spec": {**old, **spec}})
        return True
