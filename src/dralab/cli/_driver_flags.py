"""Flags that the programs of the fake driver take as Kubernetes components do.

Every flag can come from the environment: `KUBE_API_QPS=50`.
"""

import functools
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from dralab.cli._logs import LogFormatter

if TYPE_CHECKING:
    from dralab.cli._connection import ClusterConnection
    from dralab.runtime.remote import RemoteClient

TEXT: Final = "%(levelname)s %(name)s: %(message)s"
# Verbosity from which everything is logged, as klog's components use it.
DEBUG: Final = 5
LEVELS: Final = {logging.DEBUG: DEBUG, logging.INFO: 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFlags:
    """How a component asks its server, and how it logs."""

    qps: float
    burst: int
    logging_format: str
    verbosity: int

    def client(self, connection: "ClusterConnection") -> "RemoteClient":
        """Return a client once the cluster has answered; logging is set up before."""
        from dralab.runtime.throttle import Throttle

        handler = logging.StreamHandler()
        as_json = self.logging_format == "json"
        handler.setFormatter(JsonFormatter() if as_json else LogFormatter(TEXT))
        level = logging.DEBUG if self.verbosity >= DEBUG else logging.INFO
        logging.basicConfig(level=level if self.verbosity else logging.WARNING, handlers=[handler])
        throttle = Throttle(self.qps, self.burst) if self.qps > 0 else None
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


class Verbosity(click.IntRange):
    """A level, written `-v 5`, `-v5` or, as Kubernetes' components have it, `-v=5`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the level."""
        level: Any = value.removeprefix("=") if isinstance(value, str) else value
        return super().convert(level, param, ctx)


def driver_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags; the command gets `flags`."""

    @functools.wraps(command)
    def with_flags(
        *args: Any,
        kube_api_qps: float,
        kube_api_burst: int,
        logging_format: str,
        verbosity: int,
        **options: Any,
    ) -> Any:
        flags = ClientFlags(
            qps=kube_api_qps,
            burst=kube_api_burst,
            logging_format=logging_format,
            verbosity=verbosity,
        )
        return command(*args, flags=flags, **options)

    for option in (
        click.option(
            "-v",
            "--v",
            "verbosity",
            type=Verbosity(min=0),
            default=0,
            show_default=True,
            envvar="V",
            help="Log verbosity: 0 warnings, 1 more, 5 everything.",
        ),
        click.option(
            "--logging-format",
            type=click.Choice(["text", "json"]),
            default="text",
            show_default=True,
            envvar="LOGGING_FORMAT",
            help="Format of log lines.",
        ),
        click.option(
            "--kube-api-burst",
            type=click.IntRange(min=1),
            default=10,
            show_default=True,
            envvar="KUBE_API_BURST",
            help="Requests to the server that may be sent at once.",
        ),
        click.option(
            "--kube-api-qps",
            type=click.FloatRange(min=0),
            default=5,
            show_default=True,
            envvar="KUBE_API_QPS",
            help="Requests to the server per second, on average; 0: no limit.",
        ),
    ):
        with_flags = option(with_flags)
    return with_flags
