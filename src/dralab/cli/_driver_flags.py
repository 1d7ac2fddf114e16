"""Flags that the programs of the fake driver take as Kubernetes components do.

Every flag can come from the environment: `KUBE_API_QPS=50`.
"""

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from dralab.cli._logs import LogFormatter
from dralab.cli._options import opt

if TYPE_CHECKING:
    from dralab.cli._connection import ClusterConnection
    from dralab.runtime.remote import RemoteClient

TEXT: Final = "%(levelname)s %(name)s: %(message)s"
# Verbosity from which everything is logged, as klog's components use it.
DEBUG: Final = 5
LEVELS: Final = {logging.DEBUG: DEBUG, logging.INFO: 1}


class Verbosity(click.IntRange):
    """A level, written `-v 5`, `-v5` or, as Kubernetes' components have it, `-v=5`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the level."""
        level: Any = value.removeprefix("=") if isinstance(value, str) else value
        return super().convert(level, param, ctx)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFlags:
    """How a component asks its server, and how it logs."""

    kube_api_qps: float = opt(
        "Requests to the server per second, on average; 0: no limit.",
        least=0,
        default=5,
        envvar="KUBE_API_QPS",
    )
    kube_api_burst: int = opt(
        "Requests to the server that may be sent at once.",
        least=1,
        default=10,
        envvar="KUBE_API_BURST",
    )
    logging_format: str = opt(
        "Format of log lines.", ["text", "json"], default="text", envvar="LOGGING_FORMAT"
    )
    verbosity: int = opt(
        "Log verbosity: 0 warnings, 1 more, 5 everything.",
        Verbosity(min=0),
        flags="-v --v",
        default=0,
        envvar="V",
    )

    def client(self, connection: "ClusterConnection") -> "RemoteClient":
        """Return a client once the cluster has answered; logging is set up before."""
        from dralab.runtime.throttle import Throttle

        handler = logging.StreamHandler()
        as_json = self.logging_format == "json"
        handler.setFormatter(JsonFormatter() if as_json else LogFormatter(TEXT))
        level = logging.DEBUG if self.verbosity >= DEBUG else logging.INFO
        logging.basicConfig(level=level if self.verbosity else logging.WARNING, handlers=[handler])
        throttle = (
            Throttle(self.kube_api_qps, self.kube_api_burst) if self.kube_api_qps > 0 else None
        )
        return connection.client(throttle=throttle)


class JsonFormatter(logging.Formatter):
    """One JSON object a line, with the fields of component-base's JSON log format."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as a line: `ts` in milliseconds, `v` the verbosity it needs."""
        found: dict[str, Any] = {
            "ts": round(record.created * 1000, 3),
            "caller": f"{record.name}:{record.lineno}",
            "msg": record.getMessage(),
        }
        if record.levelno >= logging.WARNING:
            found["err" if record.levelno >= logging.ERROR else "warning"] = True
        else:
            found["v"] = LEVELS.get(record.levelno, 0)
        if record.exc_info:
            found["stacktrace"] = self.formatException(record.exc_info)
        return json.dumps(found)
