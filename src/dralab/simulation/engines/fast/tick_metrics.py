"""The metrics of k8s-cluster-simulator in its three formats, and their writer."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any, Final

import orjson

from dralab.scenarios.errors import InputError
from dralab.simulation.scenario.simulator_config import TickConfig
from dralab.values.quantity import Format, Number, render

MEBI: Final = 1 << 20
Metrics = Mapping[str, Any]
Amounts = Mapping[str, Number]


def as_json(metrics: Metrics, zone: tzinfo = UTC) -> str:
    """Return one JSON object without a newline; quantities are texts, times RFC 3339."""

    def amounts(value: Amounts) -> dict[str, str]:
        return {name: render(amount, _form(name)) for name, amount in sorted(value.items())}

    def texts(value: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {
            key: amounts(v) if isinstance(v, dict) else v for key, v in value.items()
        }
        if "BoundAt" in found:
            found["BoundAt"] = _rfc3339(found["BoundAt"], zone)
        return found

    return orjson.dumps(
        {
            "Clock": _rfc3339(metrics["Clock"], zone),
            "Nodes": {name: texts(node) for name, node in metrics["Nodes"].items()},
            "Pods": {name: texts(pod) for name, pod in metrics["Pods"].items()},
            "Queue": metrics["Queue"],
        }
    ).decode()


def for_people(metrics: Metrics, zone: tzinfo = UTC) -> str:
    """Return the format `humanReadable`: use / request / allocatable (pods: limit)."""
    lines = [f"Metrics {_rfc3339(metrics['Clock'], zone)}", "  Nodes"]
    for name, node in metrics["Nodes"].items():
        shares = _triples(
            node["TotalResourceUsage"], node["TotalResourceRequest"], node["Allocatable"]
        )
        lines.append(
            f"    {name}: Pods {node['RunningPodsNum']}({node['TerminatingPodsNum']})/"
            f"{_plain(node['Allocatable'].get('pods', 0))}, {shares}, "
            f"Failed {node['FailedPodsNum']}"
        )
    lines.append("  Pods")
    for name, pod in metrics["Pods"].items():
        shares = _triples(pod["ResourceUsage"], pod["ResourceRequest"], pod["ResourceLimit"])
        lines.append(
            f"    {name}: prio {pod['Priority']}, bound at {_rfc3339(pod['BoundAt'], zone)} on "
            f"{pod['Node']}, status {pod['Status']}, elapsed {pod['ExecutedSeconds']} s"
            + (f", {shares}" if shares else "")
        )
    lines += ["  Queue", f"    PendingPods {metrics['Queue']['PendingPodsNum']}"]
    return "\n".join(lines) + "\n"


def _triples(*parts: Amounts) -> str:
    names = sorted(set().union(*parts) - {"pods"}, key=lambda name: (name != "memory", name))
    return ", ".join(
        f"{'memMB' if name == 'memory' else name} "
        + "/".join(_shown(name, part.get(name, 0)) for part in parts)
        for name in names
    )


def as_table(metrics: Metrics, zone: tzinfo = UTC) -> str:
    """Return the format `table`: nodes, pods and the queue, resources in sorted order."""
    nodes, pods = metrics["Nodes"], metrics["Pods"]
    kinds = sorted(set().union(*(node["Allocatable"] for node in nodes.values())) - {"pods"})
    titles = [f"{kind} (MB)" if kind == "memory" else kind for kind in kinds]

    def cells(kind: str, parts: Iterable[Amounts]) -> str:
        return " ".join(_shown(kind, part.get(kind, 0)) for part in parts)

    node_rows = [["Node", "Pods", "Terminating", "Failed", "Capacity", *titles]]
    for name, node in nodes.items():
        parts = [node["TotalResourceUsage"], node["TotalResourceRequest"], node["Allocatable"]]
        counts = [node[f"{key}PodsNum"] for key in ("Running", "Terminating", "Failed")]
        capacity = _plain(node["Allocatable"].get("pods", 0))
        row = [name, *map(str, counts), capacity, *(cells(kind, parts) for kind in kinds)]
        node_rows.append(row)
    pod_rows = [["Pod", "Status", "Priority", "Node", "BoundAt", "Executed Seconds", *titles]]
    for name, pod in pods.items():
        parts = [pod["ResourceUsage"], pod["ResourceRequest"], pod["ResourceLimit"]]
        head = [name, pod["Status"], str(pod["Priority"]), pod["Node"]]
        head += [_rfc3339(pod["BoundAt"], zone), str(pod["ExecutedSeconds"])]
        pod_rows.append([*head, *(cells(kind, parts) for kind in kinds)])
    queue = [["PendingPods"], [str(metrics["Queue"]["PendingPodsNum"])]]
    text = "\n".join(_aligned(rows) for rows in (node_rows, pod_rows, queue))
    return f"{_rfc3339(metrics['Clock'], zone)}\n{text}"


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines) + "\n"


FORMATS: Final[Mapping[str, Callable[[Metrics, tzinfo], str]]] = {
    "JSON": as_json,
    "humanReadable": for_people,
    "table": as_table,
}


def _form(name: str) -> Format:
    return "BinarySI" if name == "memory" else "DecimalSI"


def _shown(name: str, amount: Number) -> str:
    return _plain(amount / MEBI if name == "memory" else amount)


def _plain(amount: Number | float) -> str:
    return f"{float(amount):g}"


def _rfc3339(seconds: int, zone: tzinfo) -> str:
    text = datetime.fromtimestamp(seconds, zone).isoformat(timespec="seconds")
    return text.replace("+00:00", "Z")


class MetricsWriter:
    """Writes metrics to the loggers; close it to close their files."""

    def __init__(self, config: TickConfig) -> None:
        self.config = config
        self._files: dict[str, Any] = {"stdout": sys.stdout, "stderr": sys.stderr}
        for logger in config.loggers:
            if logger.dest not in self._files:
                path = (logger.folder / logger.dest).resolve()
                if not path.is_relative_to(logger.folder.resolve()):
                    raise InputError(path, "is outside the folder of the configuration")
                self._files[logger.dest] = path.open("w", encoding="utf-8")

    def write(self, metrics: Metrics) -> None:
        """Write one set of metrics in every format that is wanted."""
        for logger in self.config.loggers:
            self._files[logger.dest].write(FORMATS[logger.formatter](metrics, self.config.zone))

    def close(self) -> None:
        """Close the files."""
        for name, file in self._files.items():
            if name not in {"stdout", "stderr"}:
                file.close()
