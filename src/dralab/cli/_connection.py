"""How commands connect to a cluster: --kubeconfig, --context and --server, as in kubectl."""

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from dralab.cli._options import FILE, opt
from dralab.cli._terminal import LogFormatter, echo
from dralab.cli.errors import UnusableInput, refusing

if TYPE_CHECKING:
    from dralab.runtime.kubeconfig import ClusterAccess
    from dralab.runtime.remote import RemoteClient
    from dralab.runtime.throttle import Throttle


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConnection:
    """The cluster and the credentials: a kubeconfig, a server's address, both, or none.

    $KUBECONFIG alone does not select a cluster: a command on files never connects by surprise.
    """

    kubeconfig: Path | None = opt("The kubeconfig of the cluster.", FILE)
    context: str = opt("The kubeconfig context to use; default: its current one.")
    server: str = opt("The server's address; overrides the kubeconfig's.", metavar="URL")

    def __post_init__(self) -> None:
        """Refuse a context of no kubeconfig. UsageError."""
        if self.context and self.kubeconfig is None:
            raise click.UsageError("--context needs --kubeconfig")

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


@dataclass(frozen=True, slots=True, kw_only=True)
class RequiredConnection(ClusterConnection):
    """A cluster that must be given; $KUBECONFIG gives one, too."""

    kubeconfig: Path | None = opt("The kubeconfig of the cluster.", FILE, envvar="KUBECONFIG")

    def __post_init__(self) -> None:
        """Refuse options that name no cluster. UsageError."""
        if not self:
            raise click.UsageError("Missing option '--kubeconfig' or '--server'.")
        ClusterConnection.__post_init__(self)


NO_CLUSTER: Final = ClusterConnection(kubeconfig=None, context="", server="")
