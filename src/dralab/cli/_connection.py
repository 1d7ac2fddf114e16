"""How commands connect to a cluster: --kubeconfig, --context and --server, as in kubectl."""

import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dralab.cli._options import FILE, opt, options_of
from dralab.cli._terminal import LogFormatter, echo
from dralab.cli.errors import UnusableInput, refusing

if TYPE_CHECKING:
    from dralab.runtime.kubeconfig import ClusterAccess
    from dralab.runtime.remote import RemoteClient
    from dralab.runtime.throttle import Throttle


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConnection:
    """The cluster and the credentials: a kubeconfig, a server's address, or both."""

    kubeconfig: Path | None
    context: str = ""
    server: str = ""

    def __bool__(self) -> bool:
        """Whether the options name a cluster."""
        return self.kubeconfig is not None or bool(self.server)

    def access(self) -> "ClusterAccess":
        """Return the kubeconfig's access, with --server in place of its server. UsageError."""
        from dralab.runtime.kubeconfig import ClusterAccess, KubeconfigError, read

        if self.server and not self.server.startswith(("http://", "https://")):
            raise click.BadParameter(
                f"{self.server!r} is not a URL that starts with http:// or https://",
                param_hint="--server",
            )
        server = self.server.rstrip("/")
        if self.kubeconfig is None:
            return ClusterAccess(server=server)
        with refusing(KubeconfigError, kind=click.UsageError):
            access = read(self.kubeconfig, self.context)
        return replace(access, server=server) if server else access

    def client(
        self,
        *,
        verbose: bool = False,
        throttle: "Throttle | None" = None,
        patient: bool = False,
    ) -> "RemoteClient":
        """Return a client once the cluster has answered. UsageError, UnusableInput.

        A `patient` caller gets it also while there is no answer: it tries again.
        """
        from dralab.api.status import ApiError
        from dralab.runtime.older_servers import AnyVersionClient
        from dralab.runtime.resources import NODES

        level = logging.DEBUG if verbose else logging.WARNING
        handler = logging.StreamHandler()
        handler.setFormatter(LogFormatter("%(levelname)s %(name)s: %(message)s"))
        logging.basicConfig(level=level, handlers=[handler])
        client = AnyVersionClient(self.access(), throttle=throttle)
        try:
            client.list(NODES)
        except ApiError as error:
            # Who may not list nodes, such as a node itself, has been answered all the same.
            waits = patient and error.reason == "ServiceUnavailable"
            if error.reason != "Forbidden" and not waits:
                raise UnusableInput(error.message) from error
            if waits:
                echo(f"{error.message}; trying again", err=True)
        return client


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a required cluster; the command gets a `connection`."""
    return _options(command, required=True)


def optional_cluster(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of an optional cluster; $KUBECONFIG alone does not select it."""
    return _options(command, required=False)


def _options(command: Callable[..., Any], *, required: bool) -> Callable[..., Any]:
    def with_connection(
        *args: Any,
        kubeconfig: Path | None = opt(
            "The kubeconfig of the cluster.", FILE, envvar="KUBECONFIG" if required else None
        ),
        context: str = opt("The kubeconfig context to use; default: its current one.", default=""),
        server: str = opt(
            "The server's address; overrides the kubeconfig's.", metavar="URL", default=""
        ),
        **options: Any,
    ) -> Any:
        connection = ClusterConnection(kubeconfig=kubeconfig, context=context, server=server)
        if required and not connection:
            raise click.UsageError("Missing option '--kubeconfig' or '--server'.")
        if context and kubeconfig is None:
            raise click.UsageError("--context needs --kubeconfig")
        return command(*args, connection=connection, **options)

    add = options_of(with_connection)
    return add(functools.update_wrapper(with_connection, command))
