"""The metrics of requests, by kube-apiserver's names: totals, durations, sizes.

Source: k8s.io/apiserver `pkg/endpoints/metrics`.
"""

import os
import resource
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from dralab.apiserver.http.messages import Answer, HttpRequest, HttpResponse, WatchStream
from dralab.apiserver.http.routing import COLLECTION_VERBS, Route
from dralab.apiserver.metrics.families import collection
from dralab.apiserver.metrics.meters import (
    FOLDED,
    Counters,
    Histograms,
    by_place,
    now,
    taken_from,
    values,
)
from dralab.kernel.clock import SECOND, WallClock

TOTAL: Final = "apiserver_request_total"
DURATION: Final = "apiserver_request_duration_seconds"
SIZES: Final = "apiserver_response_sizes"
LONG: Final = "apiserver_longrunning_requests"
INDICATOR: Final = "apiserver_request_sli_duration_seconds"
BODIES: Final = "apiserver_request_body_size_bytes"
SECONDS: Final = (
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
)  # fmt: skip
# Of bodies, as upstream spaces them.
BODY_BYTES: Final = tuple(50_000.0 + 100_000.0 * step for step in range(31))
BYTES: Final = (1000.0, 10_000.0, 100_000.0, 1e6, 1e7, 1e8, 1e9)
# Which histogram a request belongs to: verb, group, version, resource, subresource, scope, dry run.
Series = tuple[str, str, str, str, str, str, str]
LABELS: Final = ("verb", "group", "version", "resource", "subresource", "scope", "dry_run")
Watched = tuple[str, str, str]  # what watches have in common: collection, version, scope
FIRST_INDICATED: Final = 2  # the first two bounds of durations are not among the indicator's
COMPONENT: Final = "apiserver"
VERBS: Final = {
    "POST": "create", "PUT": "update", "PATCH": "patch", "APPLY": "patch", "DELETE": "delete",
    "DELETECOLLECTION": "delete",
}  # fmt: skip
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
APPLY: Final = "application/apply-patch+yaml"


class RequestMetrics:
    """Counts requests, in any thread. `watches` returns how many are open, by collection."""

    def __init__(self, watches: Callable[[], Iterable[tuple[Watched, int]]]) -> None:
        self._watches = watches
        self._begun = WallClock().now()
        # By series: code, nanoseconds, bytes of the answer and of the body. They are added later.
        self._noted: deque[tuple[Series, tuple[int, int, int, int]]] = deque()
        self._totals = Counters(
            TOTAL,
            "Counter of apiserver requests by verb, resource and HTTP code.",
            (*LABELS, "component", "code"),
        )
        self._durations = Histograms(
            DURATION,
            "Response latency in seconds by verb and resource.",
            (*LABELS, "component"),
            SECONDS,
        )
        in_all = (*LABELS[:-1], "component")  # dry runs are not told apart
        self._indicators = Histograms(
            INDICATOR,
            "Response latency in seconds of what is no watch, with webhooks.",
            in_all,
            SECONDS[FIRST_INDICATED:],
        )
        self._bodies = Histograms(
            BODIES, "Bytes of the bodies of requests.", ("group", "resource", "verb"), BODY_BYTES
        )
        self._sizes = Histograms(
            SIZES, "Response size in bytes by verb and resource.", in_all, BYTES
        )

    def count(self, request: HttpRequest, answer: Answer, began: int) -> None:
        """Count a request that has been answered; a watch or stream is counted as it begins."""
        status, size = 200, 0
        if isinstance(answer, HttpResponse):
            status, body = answer.status, answer.body
            size = len(body) if isinstance(body, bytes) else sum(map(len, body))
        series = _series(request, is_watch=isinstance(answer, WatchStream))
        self._noted.append((series, (status, now() - began, size, len(request.body))))
        if len(self._noted) >= FOLDED:
            self._fold()

    def _fold(self) -> None:
        """Add what was noted of many requests."""
        for series, rows in by_place(taken_from(self._noted)).items():
            codes, taken, sizes, bodies = zip(*rows, strict=True)
            verb, group, _, plural, *_ = series
            labels, in_all = (*series, COMPONENT), (*series[:-1], COMPONENT)
            for code, number in Counter(codes).items():
                self._totals.add((*labels, str(code)), number)
            self._durations.add_all(labels, taken)
            if verb != "WATCH":
                self._indicators.add_all(in_all, taken)
            if verb in {"GET", "LIST"}:
                self._sizes.add_all(in_all, sizes, unit=1)
            if plural and any(bodies):
                place = group, plural, VERBS.get(verb, "other")
                self._bodies.add_all(place, list(filter(None, bodies)), unit=1)

    def lines(self) -> Iterator[str]:
        """Yield all metrics in Prometheus' text format."""
        self._fold()
        for each in (self._totals, self._durations, self._indicators, self._bodies, self._sizes):
            yield from each.lines()
        watches = []
        for (hub, version, scope), number in sorted(self._watches()):
            group, plural = collection(hub)
            watches.append((("WATCH", group, version, plural, "", scope, COMPONENT), number))
        about = "Gauge of all open watches by resource."
        yield from values(LONG, "gauge", about, (*LABELS[:-1], "component"), watches)
        yield from _process(self._begun)


def _series(request: HttpRequest, *, is_watch: bool) -> Series:
    route = request.route
    if not isinstance(route, Route):
        # Clients may send any word as a method.
        known = request.method if request.method in METHODS else "other"
        return known, "", "", "", "", "", ""
    kind = route.kind
    scope = "resource" if route.name else "namespace" if route.namespace else "cluster"
    dry = "All" if "dryRun" in request.query else ""
    verb = request.method
    if is_watch:
        verb = "WATCH"
    elif verb not in METHODS:
        verb = "other"
    elif not route.name:
        if verb == "GET":
            verb = "LIST"
        elif COLLECTION_VERBS.get(verb) == "deletecollection":
            verb = "DELETECOLLECTION"
    elif verb == "PATCH" and request.headers.get("content-type", "").startswith(APPLY):
        verb = "APPLY"
    return verb, kind.group, kind.version, kind.plural, route.subresource, scope, dry


def _process(begun: int) -> Iterator[str]:
    """Yield the metrics of the process, as Prometheus' client libraries name them."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    figures: dict[str, tuple[str, float]] = {
        "process_cpu_seconds_total": ("counter", used.ru_utime + used.ru_stime),
        "process_max_fds": ("gauge", resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
        "process_start_time_seconds": ("gauge", begun / SECOND),
    }
    place = Path("/proc/self")
    if place.exists():
        pages = [int(each) for each in (place / "statm").read_text().split()[:2]]
        size = os.sysconf("SC_PAGE_SIZE")
        figures["process_open_fds"] = ("gauge", len(list((place / "fd").iterdir())))
        figures["process_virtual_memory_bytes"] = ("gauge", pages[0] * size)
        figures["process_resident_memory_bytes"] = ("gauge", pages[1] * size)
    for name, (sort, value) in sorted(figures.items()):
        yield f"# TYPE {name} {sort}"
        yield f"{name} {value}"
