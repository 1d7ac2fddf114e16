"""Checks of device health: the stream that a kubelet opens right after registration."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from dralab.contracts import wire
from dralab.drivercheck.bench import Bench
from dralab.drivercheck.catalog import (
    HEALTH_PROTO,
    KUBELET,
    MUST,
    REGISTRATION_PROTO,
    SHOULD,
    Catalog,
)
from dralab.drivercheck.rules import CheckNeed, NotApplicable, fail, require
from dralab.drivercheck.sockets import HealthStream
from dralab.kernel.clock import SECOND

catalog: Final = Catalog("health")
WATCH: Final = f"{KUBELET}: HandleWatchResourcesStream"
INFO: Final = "kubernetes/pkg/kubelet/cm/dra/healthinfo.go"
LONGEST_MESSAGE: Final = 1024
HOUR: Final = 3_600


def offered(bench: Bench) -> list[str]:
    """Return the health services that the driver announced."""
    return [name for name in wire.HEALTH_SERVICES if name in bench.plugin.versions]


@contextmanager
def stream_of(bench: Bench, service: str = "") -> Iterator[HealthStream]:
    """Open a health stream and wait for its first report. NotApplicable: there is no health."""
    services = [service] if service else offered(bench) or list(wire.HEALTH_SERVICES)
    for name in services:
        with bench.connection.watch_health(name) as stream:
            end = bench.clock.now() + int(bench.limits.ready * SECOND)
            while not stream.reports and not stream.ended.is_set() and bench.clock.now() < end:
                bench.wait(0.005)
            if stream.error is not None and stream.error.code == "UNIMPLEMENTED":
                continue
            require(stream.reports, f"{name} reported nothing in {bench.limits.ready:g} s")
            yield stream
            return
    raise NotApplicable("the driver does not tell the health of its devices")


@catalog.check(MUST, f"{WATCH}; {HEALTH_PROTO}")
def served(bench: Bench) -> None:
    """Each health service that is announced is served."""
    names = offered(bench)
    if not names:
        raise NotApplicable("the driver announces no health service")
    for name in names:
        try:
            with stream_of(bench, name):
                pass
        except NotApplicable:
            fail(f"{name} is announced and not served")


@catalog.check(SHOULD, f"{REGISTRATION_PROTO}: supported_versions")
def announced(bench: Bench) -> None:
    """A health service that is served is in supported_versions."""
    with stream_of(bench):
        require(offered(bench), "a health service is served, and none is announced")


@catalog.check(MUST, f"{WATCH}: opened right after registration", fresh=True)
def first(bench: Bench) -> None:
    """The first report comes at once: until then the devices' health is Unknown."""
    bench.start()
    taken, limit = _first_report(bench), bench.limits.first_report
    require(taken <= limit, f"the first report came after {taken:.1f} s: at most {limit:g}")


def _first_report(bench: Bench) -> float:
    """Return after how many seconds a new stream reports."""
    begin = bench.clock.now()
    with stream_of(bench) as stream:
        return (stream.reports[0][0] - begin) / SECOND


@catalog.check(MUST, f"{HEALTH_PROTO}: DeviceIdentifier; {INFO}")
def known_devices(bench: Bench) -> None:
    """Reports are about devices that the driver has published."""
    known = {(device.pool, device.name) for device in bench.devices()}
    with stream_of(bench) as stream:
        for one in stream.devices():
            require(
                (one.pool, one.device) in known,
                f"a report is about the device {one.device} of the pool {one.pool}, which is in no "
                f"slice; a published one is {' of '.join(reversed(min(known)))}",
            )


@catalog.check(SHOULD, f"{INFO}: updateHealthInfo")
def all_devices(bench: Bench) -> None:
    """A report has all published devices: the kubelet replaces what it knew."""
    with stream_of(bench) as stream:
        told = {one.device for one in stream.devices()}
        missing = sorted({device.name for device in bench.devices()} - told)
        require(not missing, f"the report says nothing of {', '.join(missing)}")


@catalog.check(MUST, f"{INFO}: the last entry would win")
def once(bench: Bench) -> None:
    """A report has each device once."""
    with stream_of(bench) as stream:
        names = [(one.pool, one.device) for one in stream.devices()]
        twice = sorted({name for pool, name in names if names.count((pool, name)) > 1})
        require(not twice, f"the report has {', '.join(twice)} twice")


@catalog.check(MUST, f"{INFO}: a device becomes Unknown when its report is too old", long=True)
def refresh(bench: Bench) -> None:
    """Reports are repeated before they are too old: 30 s, or the time-out in the report."""
    with stream_of(bench) as stream:
        if all(one.health == "Unknown" for one in stream.devices()):
            raise NotApplicable("all devices are Unknown, as they are without a report")
        own = [one.timeout for one in stream.devices() if one.timeout > 0]
        limit = min([*own, bench.limits.stale])
        begin = stream.reports[0][0]
        while len(stream.reports) < 2 and bench.clock.now() < begin + int(limit * SECOND):
            require(
                not stream.ended.is_set(), f"the stream ended: {stream.error or 'without error'}"
            )
            bench.wait(0.01)
        require(len(stream.reports) > 1, f"no second report in {limit:g} s: all is Unknown now")


@catalog.check(MUST, f"{WATCH}: the stream is opened again and again", fresh=True)
def again(bench: Bench) -> None:
    """A stream that is opened again reports at once: a kubelet opens it 5 s after its end."""
    bench.start()
    limit = bench.limits.first_report
    if _first_report(bench) > limit:
        raise NotApplicable("the first stream's report is late, too")
    taken = _first_report(bench)
    require(taken <= limit, f"the second stream's first report came after {taken:.1f} s")


@catalog.check(
    SHOULD, f"{WATCH}: a kubelet that restarts may be faster than the end of its old connection"
)
def two_streams(bench: Bench) -> None:
    """Two streams at the same time both report."""
    with stream_of(bench) as one:
        try:
            with stream_of(bench) as other:
                require(other.reports, "the second stream reports nothing")
        except NotApplicable:
            fail("a second stream is refused while the first is open")
        bench.wait(min(1.0, bench.limits.quiet))
        require(not one.ended.is_set(), "the first stream ended when a second was opened")


@catalog.check(
    SHOULD,
    f"{HEALTH_PROTO}: DeviceHealth.message",
    sentence=f"Messages have at most {LONGEST_MESSAGE} characters.",
)
def messages(bench: Bench) -> None:
    with stream_of(bench) as stream:
        for one in stream.reports[0][1].devices:
            size, name = len(one.message), one.device.device_name
            require(size <= LONGEST_MESSAGE, f"the message of {name} has {size} characters")


@catalog.check(SHOULD, f"{HEALTH_PROTO}: DeviceHealth.last_updated_time")
def times(bench: Bench) -> None:
    """last_updated_time is in seconds since the epoch, and of today."""
    with stream_of(bench) as stream:
        now = bench.clock.now() // SECOND
        for one in stream.reports[0][1].devices:
            told = one.last_updated_time
            name = one.device.device_name
            require(
                abs(told - now) <= 24 * HOUR,
                f"last_updated_time of {name} is {told}, and now is {now}",
            )


@catalog.check(SHOULD, f"{HEALTH_PROTO}: DeviceHealth.health_check_timeout_seconds")
def timeouts(bench: Bench) -> None:
    """health_check_timeout_seconds is not negative, and at most an hour."""
    with stream_of(bench) as stream:
        for one in stream.devices():
            require(0 <= one.timeout <= HOUR, f"the time-out of {one.device} is {one.timeout} s")


@catalog.check(SHOULD, f"{WATCH}: every report makes the kubelet look at all pods with devices")
def quiet(bench: Bench) -> None:
    """While nothing changes, reports are rare: at most 10 a second."""
    with stream_of(bench) as stream:
        before = len(stream.reports)
        bench.wait(1.0)
        found = len(stream.reports) - before
        most = bench.limits.reports
        require(found <= most, f"{found} reports in a second: at most {most}")


@catalog.check(
    MUST, f"{HEALTH_PROTO}: HealthStatus UNHEALTHY; KEP-4680", needs=[CheckNeed.HEALTH_HOOK]
)
def unhealthy(bench: Bench) -> None:
    """A device that becomes unhealthy is reported so."""
    _made(bench, healthy=False)


@catalog.check(
    MUST, f"{HEALTH_PROTO}: HealthStatus HEALTHY; KEP-4680", needs=[CheckNeed.HEALTH_HOOK]
)
def recovery(bench: Bench) -> None:
    """A device that recovers is reported healthy again."""
    _made(bench, healthy=False, required=False)
    _made(bench, healthy=True)


def _made(bench: Bench, *, healthy: bool, required: bool = True) -> None:
    name = bench.devices()[0].name
    wanted = "Healthy" if healthy else "Unhealthy"
    with stream_of(bench) as stream:
        bench.set_health(name, healthy=healthy)
        try:
            end = bench.clock.now() + int(bench.limits.stale * SECOND)
            while bench.clock.now() < end:
                if {one.device: one.health for one in stream.devices()}.get(name) == wanted:
                    return
                bench.wait(0.01)
        finally:
            if not healthy and required:
                bench.set_health(name, healthy=True)
        require(not required, f"{name} is {wanted}, and no report says so")
