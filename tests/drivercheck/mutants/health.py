"""Drivers that tell the health of their devices wrongly."""

import threading
from dataclasses import replace

from referencedriver import Lamps, QuickServer, target

from dralab.contracts import wire
from dralab.drivers.sockets import _health_handler, _plugin_handler, _registration_handler, _version
from dralab.kernel.clock import SECOND

NAMES = list(wire.HEALTH_SERVICES)


def serving(services, announced=NAMES):
    """A driver that serves some health services, and says that it serves others."""

    class Server(QuickServer):
        def start(self):
            handlers = [_plugin_handler(_version(name), self) for name in self.versions]
            handlers += [_health_handler(name, self) for name in services]
            self._serve(self.endpoint, handlers)
            self._serve(self.registration, [_registration_handler(self)])

        def info(self):
            found = super().info()
            kept = [name for name in found.supported_versions if "Health" not in name]
            del found.supported_versions[:]
            found.supported_versions.extend([*kept, *announced])
            return found

    return lambda: target(server=Server)


def telling(change):
    """A driver that reports something else."""

    class Mutant(Lamps):
        def health(self):
            return change(list(super().health()))

    return lambda: target(Mutant)


def reporting(**methods):
    """A driver whose stream is another."""
    return lambda: target(server=type("Server", (QuickServer,), methods))


def slow(self, active):
    threading.Event().wait(7.0)
    yield from QuickServer.reports(self, active)


def slow_again(self, active):
    self.opened = getattr(self, "opened", 0) + 1
    if self.opened > 1:
        threading.Event().wait(7.0)
    yield from QuickServer.reports(self, active)


def once_only(self, active):
    told = None
    while active() and not self._stopping.is_set():
        if told != (told := list(self.plugin.health())):
            yield wire.health_response(told, self.clock.now() // SECOND)
        self._stopping.wait(0.02)


def jealous(self, active):
    self.latest = mine = object()
    for report in QuickServer.reports(self, active):
        if self.latest is not mine:
            return
        yield report


def in_milliseconds(self, active):
    for report in QuickServer.reports(self, active):
        for device in report.devices:
            device.last_updated_time *= 1000
        yield report


def without_limit(self, active):
    for report in QuickServer.reports(self, active):
        report.devices[0].message = "x" * 2000
        yield report


def flooding(self, active):
    for report in QuickServer.reports(self, active):
        for _ in range(20):
            yield report


def deaf(wanted):
    """A driver that does not notice a change to one state."""

    class Mutant(Lamps):
        def health(self):
            found = super().health()
            if wanted == "Unhealthy":
                return [replace(one, health="Healthy") for one in found]
            ill = {one.device for one in found if one.health == "Unhealthy"}
            self.ever = getattr(self, "ever", set()) | ill
            return [
                replace(one, health="Unhealthy") if one.device in self.ever else one
                for one in found
            ]

    return lambda: target(Mutant)


MUTANTS = {
    "health.served": serving(NAMES[1:]),
    "health.announced": serving(NAMES, announced=[]),
    "health.first": reporting(reports=slow),
    "health.known-devices": telling(lambda all_: [*all_, replace(all_[0], device="none")]),
    "health.all-devices": telling(lambda all_: all_[:-1]),
    "health.once": telling(lambda all_: [*all_, all_[0]]),
    "health.refresh": reporting(reports=once_only),
    "health.again": reporting(reports=slow_again),
    "health.two-streams": reporting(reports=jealous),
    "health.messages": reporting(reports=without_limit),
    "health.times": reporting(reports=in_milliseconds),
    "health.timeouts": telling(lambda all_: [replace(one, timeout=-1) for one in all_]),
    "health.quiet": reporting(reports=flooding),
    "health.unhealthy": deaf("Unhealthy"),
    "health.recovery": deaf("Healthy"),
}
