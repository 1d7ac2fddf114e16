"""The metrics of a node's claims: the kubelet's names and buckets.

Source: kubelet 1.36, `pkg/kubelet/metrics` and `cm/dra`. Who serves the text is the endpoint's
business.
"""

import threading
from collections.abc import Mapping
from dataclasses import field
from typing import Final

from dralab.kernel.clock import SECOND
from dralab.values.exposition import histogram_lines, labels_text
from dralab.values.records import dataclass

ANY_DRIVER: Final = "<any>"
# ExponentialBucketsRange(.1, 40, 15), in seconds.
BUCKETS: Final = tuple(0.1 * (40 / 0.1) ** (step / 14) for step in range(15))
OPERATIONS: Final = "dra_operations_duration_seconds"
CALLS: Final = "dra_grpc_operations_duration_seconds"
CLAIMS: Final = "dra_resource_claims_in_use"
HELP: Final[Mapping[str, str]] = {
    CLAIMS: "Number of prepared ResourceClaims on the node by driver; <any> counts each claim once",
    OPERATIONS: "Duration of PrepareResources and UnprepareResources for all claims of a pod",
    CALLS: "Duration of calls to drivers by gRPC method and status",
}


@dataclass(slots=True)
class _Histogram:
    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    total: float = 0.0

    def observe(self, seconds: float) -> None:
        self.total += seconds
        for index, limit in enumerate(BUCKETS):
            if seconds <= limit:
                self.counts[index] += 1
                return
        self.counts[-1] += 1


class NodeMetrics:
    """The histograms of one node. Any thread may observe; durations are in nanoseconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[tuple[str, tuple[tuple[str, str], ...]], _Histogram] = {}

    def operation(self, name: str, duration: int, *, failed: bool) -> None:
        """Note that all claims of a pod were prepared or unprepared, or could not be."""
        error = "true" if failed else "false"
        self._observe(OPERATIONS, duration, is_error=error, operation_name=name)

    def call(self, driver: str, method: str, status: str, duration: int) -> None:
        """Note a call to a driver: its gRPC method with the service, its status as Go names it."""
        labels = {"driver_name": driver, "grpc_status_code": status, "method_name": method}
        self._observe(CALLS, duration, **labels)

    def _observe(self, name: str, duration: int, **labels: str) -> None:
        key = name, tuple(sorted(labels.items()))
        with self._lock:
            self._found.setdefault(key, _Histogram()).observe(duration / SECOND)

    def text(self, claims_in_use: Mapping[str, int]) -> str:
        """Return all metrics in Prometheus' text format; `claims_in_use` are counts by driver.

        >>> NodeMetrics().text({"<any>": 0}).splitlines()[-1]
        'dra_resource_claims_in_use{driver_name="<any>"} 0'
        """
        with self._lock:
            found = [
                (name, labels, list(each.counts), each.total)
                for (name, labels), each in sorted(self._found.items())
            ]
        lines, told = [], ""
        for name, labels, counts, total in found:
            if name != told:
                lines += [f"# HELP {name} {HELP[name]}", f"# TYPE {name} histogram"]
                told = name
            lines += histogram_lines(name, labels_text(labels), BUCKETS, counts, total)
        lines += [f"# HELP {CLAIMS} {HELP[CLAIMS]}", f"# TYPE {CLAIMS} gauge"]
        for driver, count in sorted(claims_in_use.items()):
            lines.append(f"{CLAIMS}{{{labels_text([('driver_name', driver)])}}} {count}")
        return "\n".join(lines) + "\n"
