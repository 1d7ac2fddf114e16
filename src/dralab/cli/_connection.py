"""How commands reach a cluster: --kubeconfig, --context, --server, as kubectl has them."""

import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dralab.cli.errors import Unusable

if TYPE_CHECKING:
    from dralab.runtime.kubeconfig import Access
    from dralab.runtime.remote import RemoteClient


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Which cluster, and as whom: a kubeconfig, the address of a server, or both."""

    kubeconfig: Path | None
    context: str = ""
    server: str = ""

    def __bool__(self) -> bool:
        """Whether a cluster is named at all."""
        return self.kubeconfig is not None or bool(self.server)

    def access(self) -> "Access":
        """Return what the kubeconfig says, at the server named instead of its own. UsageError."""
        from dralab.runtime.kubeconfig import Access, KubeconfigError, read

        if self.server and not self.server.startswith(("http://", "https://")):
            raise click.BadParameter(
                f"{self.server!r} is not a URL that starts with http:// or https://",
                param_hint="--server",
            )
        server = self.server.rstrip("/")
        if self.kubeconfig is None:
            return Access(server=server)
        try:
            access = read(self.kubeconfig, self.context)
        except KubeconfigError as error:
            raise click.UsageError(str(error)) from error
        return replace(access, server=server) if server else access

    def client(self, *, verbose: bool = False) -> "RemoteClient":
        """Return a client of the cluster, once it has answered. UsageError, Unusable."""
        from dralab.api.status import ApiError
        from dralab.runtime.remote import RemoteClient
        from dralab.runtime.resources import NODES

        level = logging.DEBUG if verbose else logging.WARNING
        logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s")
        # Connections above those that it keeps are closed; nobody needs to know.
        logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
        client = RemoteClient(self.access())
        try:
            client.list(NODES)
        except ApiError as error:
            raise Unusable(error.message) from error
        return client


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a cluster that has to be named; the command gets a `connection`."""
    return _options(command, required=True)


def optional_cluster(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a cluster that may be named; $KUBECONFIG alone does not name it."""
    return _options(command, required=False)


def _options(command: Callable[..., Any], *, required: bool) -> Callable[..., Any]:
    @functools.wraps(command)
    def with_connection(
        *args: Any, kubeconfig: Path | None, context: str, server: str, **options: Any
    ) -> Any:
        connection = Connection(kubeconfig=kubeconfig, context=context, server=server)
        if required and not connection:
            raise click.UsageError("Missing option '--kubeconfig' or '--server'.")
        if context and kubeconfig is None:
            raise click.UsageError("--context chooses in a kubeconfig: add --kubeconfig")
        return command(*args, connection=connection, **options)

    for option in (
        click.option(
            "--server",
            default="",
            metavar="URL",
            help="The address of the server, instead of the kubeconfig's.",
        ),
        click.option(
            "--context", default="", help="A context other than the kubeconfig's current one."
        ),
        click.option(
            "--kubeconfig",
            type=click.Path(dir_okay=False, path_type=Path),
            envvar="KUBECONFIG" if required else None,
            help="Which cluster, and as whom.",
        ),
    ):
        with_connection = option(with_connection)
    return with_connection
