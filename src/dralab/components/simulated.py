"""A whole cluster on a simulated clock: a week takes as long as processing its events.

>>> from dralab.runtime.resources import NAMESPACES
>>> cluster = SimulatedCluster()
>>> cluster.wait(7 * 24 * 3600)
>>> len(cluster.client.list(NAMESPACES).items)
4
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from dralab.api.kinds import Kinds
from dralab.api.releases import MIXED, parse
from dralab.api.resource.features import Features, of_simulations, off_in
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore
from dralab.components.control_plane import assemble
from dralab.components.profiles import install
from dralab.kernel.clock import SECOND, from_rfc3339
from dralab.kernel.events import Events
from dralab.kernel.randomness import Randomness
from dralab.runtime.local import LocalClient
from dralab.runtime.manager import Manager
from dralab.runtime.simulated import SimulatedEngine

if TYPE_CHECKING:
    from dralab.scheduler.scheduler import Scheduler

BEGINNING = "2026-01-01T00:00:00Z"
# Time for retries after a conflict, not for back-off, leases or deadlines.
MOMENT = SECOND // 5


class SimulatedCluster:
    """Server, scheduler and controllers, the same that run live; nothing ever waits.

    Same seed, same calls, same objects, to the byte. `events` may be the heap of a larger
    simulation; `without` leaves out parts as `dralab up --without` does, `profiles` are those of
    `dralab up --api`, `features` the gates that are on, `version` the release of Kubernetes.
    `brief`: of pods that fit nowhere one sentence is written, which is cheap.
    """

    def __init__(
        self,
        *,
        without: Collection[str] = (),
        seed: int = 0,
        beginning: str = BEGINNING,
        events: Events | None = None,
        profiles: Sequence[str] = (),
        features: Features | None = None,
        version: str = MIXED,
        brief: bool = False,
    ) -> None:
        self.engine = SimulatedEngine(events)
        if events is None:
            self.engine.clock.advance_to(from_rfc3339(beginning))
        release = parse(version) if version else MIXED
        randomness = Randomness(seed)
        on = of_simulations(release) if features is None else features
        self.server = ApiServer(
            MemoryStore(),
            clock=self.engine.clock,
            randomness=randomness,
            kinds=Kinds.standard(release=release),
            features=on,
        )
        if profiles:
            install(self.server.resources, profiles)
        self.client = LocalClient(self.server.resources, self.server.hub)
        self.manager = Manager(self.engine, self.client, randomness)
        self.scheduler: Scheduler | None = assemble(
            self.manager,
            without=without,
            kinds=self.server.resources.kinds,
            brief=brief,
            alone=True,
            off=off_in(release, on),
        )
        self.manager.start()
        self.settle()

    @property
    def now(self) -> int:
        """The simulated time, in nanoseconds since the epoch."""
        return self.engine.clock.now()

    def wait(self, seconds: float) -> None:
        """Let that much simulated time pass, with all that happens in it."""
        if not isinstance(seconds, (int, float)) or seconds < 0:
            raise ValueError(f"{seconds!r} is not a number of seconds: give 0 or more")
        self.engine.run(self.now + int(seconds * SECOND))
        self.server.tick()

    def settle(self) -> None:
        """Let everything happen that needs no more than a moment."""
        self.engine.run(self.now + MOMENT)
