"""The metrics of requests, by kube-apiserver's names: totals, durations, sizes.

Source: k8s.io/apiserver `pkg/endpoints/metrics`.
"""

import os
import resource
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Final

from dralab.apiserver.http.messages import Answer, HttpRequest, HttpResponse, WatchStream
from dralab.apiserver.http.routing import COLLECTION_VERBS, Route
from dralab.apiserver.metrics.meters import Histograms
from dralab.kernel.clock import SECOND, WallClock
from dralab.values.exposition import histogram_lines, labels_text

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
VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
APPLY: Final = "application/apply-patch+yaml"


class _Counts:
    """The requests of one series."""

    __slots__ = ("codes", "seconds", "sizes", "time", "total")

    def __init__(self) -> None:
        self.codes: Counter[int] = Counter()
        self.seconds = [0] * (len(SECONDS) + 1)
        self.sizes = [0] * (len(BYTES) + 1)
        self.time = 0.0
        self.total = 0


class RequestMetrics:
    """Counts requests, in any thread. `watches` returns how many are open, by collection."""

    def __init__(self, watches: Callable[[], Iterable[tuple[Watched, int]]]) -> None:
        self._watches = watches
        self._wall = WallClock()
        self._begun = self._wall.now()
        self._lock = Lock()
        self._found: dict[Series, _Counts] = {}
        self._bodies = Histograms(
            BODIES, "Bytes of the bodies of requests.", ("group", "resource", "verb"), BODY_BYTES
        )

    def now(self) -> int:
        """Return the time from which the duration of a request is measured."""
        return self._wall.now()

    def count(self, request: HttpRequest, answer: Answer, began: int) -> None:
        """Count a request that has been answered; a watch or stream is counted as it begins."""
        seconds = (self._wall.now() - began) / SECOND
        status, size = 200, 0
        if isinstance(answer, HttpResponse):
            status, body = answer.status, answer.body
            size = len(body) if isinstance(body, bytes) else sum(map(len, body))
        series = _series(request, is_watch=isinstance(answer, WatchStream))
        if request.body and isinstance(request.route, Route):
            kind = request.route.kind
            self._bodies.add(
                (kind.group, kind.plural, VERBS.get(request.method, "other")), len(request.body)
            )
        with self._lock:
            found = self._found.get(series)
            if found is None:
                found = self._found[series] = _Counts()
            found.codes[status] += 1
            found.seconds[bisect_left(SECONDS, seconds)] += 1
            found.sizes[bisect_left(BYTES, size)] += 1
            found.time += seconds
            found.total += size

    def lines(self) -> Iterator[str]:
        """Yield all metrics in Prometheus' text format."""
        with self._lock:
            found = sorted(self._found.items())
        yield f"# HELP {TOTAL} Counter of apiserver requests by verb, resource and HTTP code."
        yield f"# TYPE {TOTAL} counter"
        for series, counts in found:
            for code, number in sorted(counts.codes.items()):
                yield f'{TOTAL}{{{_labels(series)},code="{code}"}} {number}'
        yield f"# HELP {DURATION} Response latency in seconds by verb and resource."
        yield f"# TYPE {DURATION} histogram"
        for series, counts in found:
            labels = _labels(series)
            yield from histogram_lines(DURATION, labels, SECONDS, counts.seconds, counts.time)
        yield f"# HELP {INDICATOR} Response latency in seconds of what is no watch, with webhooks."
        yield f"# TYPE {INDICATOR} histogram"
        bounds = SECONDS[FIRST_INDICATED:]
        for series, counts in found:
            if series[0] != "WATCH":
                labels = _labels(series[:-1])
                first = sum(counts.seconds[: FIRST_INDICATED + 1])
                rest = counts.seconds[FIRST_INDICATED + 1 :]
                yield from histogram_lines(INDICATOR, labels, bounds, [first, *rest], counts.time)
        yield from self._bodies.lines()
        yield f"# HELP {SIZES} Response size in bytes by verb and resource."
        yield f"# TYPE {SIZES} histogram"
        for series, counts in found:
            if series[0] in {"GET", "LIST"}:
                labels = _labels(series[:-1])
                yield from histogram_lines(SIZES, labels, BYTES, counts.sizes, counts.total)
        yield f"# HELP {LONG} Gauge of all open watches by resource."
        yield f"# TYPE {LONG} gauge"
        for (hub, version, scope), number in sorted(self._watches()):
            group, _, plural = hub.rpartition("/")
            labels = _labels(("WATCH", group, version, plural, "", scope))
            yield f"{LONG}{{{labels}}} {number}"
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


def _labels(series: Sequence[str]) -> str:
    pairs = list(zip(LABELS, series, strict=False))  # without the last, where it does not matter
    return labels_text([*pairs, ("component", "apiserver")])


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
