"""The server's own calls: of webhooks, conversions and aggregated API servers."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dralab.apiserver.made_once import made_once
from dralab.apiserver.storage import Key, Stored
from dralab.values.records import dataclass

if TYPE_CHECKING:
    from dralab.apiserver.outgoing.client import CallClient
    from dralab.apiserver.outgoing.targets import Network, ServiceAt, Targets


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingSettings:
    """Where the server may call: networks beside the loopback, and the addresses of Services.

    Services also lead to `pods`, the networks of this cluster's pods.
    `proxy_certificate` are the files of the certificate and key for aggregated API servers, which
    `aggregator_routing` reaches at endpoints only.
    """

    networks: "Sequence[Network]" = ()
    services: "Sequence[ServiceAt]" = ()
    pods: "Sequence[Network]" = ()
    proxy_certificate: tuple[str, str] | None = None
    aggregator_routing: bool = False


class OutgoingCalls:
    """What calls need, created at the first one so that servers start faster."""

    def __init__(
        self,
        settings: OutgoingSettings,
        find: Callable[[Key], Stored | None],
        all_of: Callable[[str, str], Sequence[Stored]],
    ) -> None:
        self.settings = settings
        self._find = find
        self._all_of = all_of

    @made_once
    def targets(self) -> "Targets":
        """Where calls may go."""
        from dralab.apiserver.outgoing.targets import Targets

        settings = self.settings
        return Targets(
            self._find,
            self._all_of,
            networks=settings.networks,
            services=settings.services,
            pods=settings.pods,
        )

    @made_once
    def client(self) -> "CallClient":
        """What makes the calls."""
        from dralab.apiserver.outgoing.client import CallClient

        return CallClient()

    def close(self) -> None:
        """Close the connections that are kept."""
        if "client" in self.__dict__:
            self.client.close()
