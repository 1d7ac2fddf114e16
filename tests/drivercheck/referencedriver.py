"""A driver that keeps every rule of the bench: the mutants each break one of them."""

from dralab.contracts.plugin import DeviceHealth
from dralab.drivercheck import sdk_target
from dralab.drivercheck.bench import Bench
from dralab.drivercheck.rules import CheckLimits, Shared
from dralab.drivers.driver import ContainerEdits, Driver, PrepareError, SliceOf
from dralab.drivers.sockets import SocketServer

CONFIG = "reference.dralab.dev/v1"
# The waits of the mutants are a little longer. On a busy machine a good driver needs seconds, too.
LIMITS = CheckLimits(
    ready=20, stop=10, info=1.5, notify=5, call=20, first_report=6, stale=6, repair=10, settle=5,
    quiet=0.4, crash_points=3, claims=48, slow=1.5, down=0.2, load=20, threads=2, memory=1,
    descriptors=2,
)  # fmt: skip


class Lamps(Driver):
    """Twelve lamps, one that is shared, and a big one whose halves can be had on their own."""

    name = "reference.dralab.dev"
    cdi_class = "lamp"
    sick = ()

    def inventory(self):
        lamps = [
            {"name": f"lamp-{n}", "attributes": {"index": {"int": n}, "dim": {"bool": n % 2 == 0}}}
            for n in range(12)
        ]
        shared = {
            "name": "spot-0",
            "allowMultipleAllocations": True,
            "capacity": {"light": {"value": "100", "requestPolicy": {"default": "10"}}},
        }
        halves = [
            {
                "name": name,
                "consumesCounters": [
                    {"counterSet": "big", "counters": {"bulbs": {"value": str(bulbs)}}}
                ],
            }
            for name, bulbs in (("big-0-left", 1), ("big-0-right", 1), ("big-0", 2))
        ]
        counters = [{"name": "big", "counters": {"bulbs": {"value": "2"}}}]
        return [
            SliceOf(counters=counters),
            SliceOf(devices=[*lamps, shared]),
            SliceOf(devices=halves),
        ]

    def edits(self, claim, result):
        config = claim.config_for(result)
        if config is not None and config.get("apiVersion") != CONFIG:
            raise PrepareError(f"no kind {config.get('kind')} is registered for {CONFIG}")
        return ContainerEdits(env=(f"LAMP={result.device}",))

    def health(self):
        return [
            DeviceHealth(
                pool=self.node,
                device=device["name"],
                health="Unhealthy" if device["name"] in self.sick else "Healthy",
            )
            for part in self.inventory()
            for device in part.devices
        ]


def bench(driver, previous=None):
    """Return what makes benches for a driver, with all that checks may need."""
    running, shared = {}, Shared()

    class Watched(type(driver)):
        def start(self, places, pod_uid=""):
            found = running[places.root] = super().start(places, pod_uid)
            return found

    def hook(places, device, healthy):
        running[places.root].code.sick = () if healthy else (device,)

    watched = Watched(driver.parts, driver.title, driver.more)
    return lambda: Bench(
        watched, limits=LIMITS, previous=previous or target(), health_hook=hook, shared=shared
    )


class QuickServer(SocketServer):
    look_every = 0.02
    report_every = 0.2


def target(driver=Lamps, **parts):
    parts.setdefault("server", QuickServer)
    return sdk_target.of(driver, **parts)
