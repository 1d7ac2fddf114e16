"""What a server publishes of itself: its address and machine, and how clients are authenticated."""

import socket
from collections.abc import Sequence
from pathlib import Path

from dralab.apiserver.authentication.settings import AuthenticationFlags
from dralab.apiserver.resources.own_objects import OwnAddress, authentication_data
from dralab.kernel.files import read


def own_address(
    address: str, network: str, flags: AuthenticationFlags, client_cas: Sequence[Path]
) -> OwnAddress:
    """Return what the server at `address` (host:port) publishes; `client_cas` are files (PEM)."""
    host, _, port = address.rpartition(":")
    proxies = flags.requestheader_client_ca_file
    return OwnAddress(
        host=host,
        port=int(port),
        machine=socket.gethostname(),
        network=network,
        authentication=authentication_data(
            client_cas="".join(read(file).decode("ascii") for file in client_cas),
            proxy_cas="" if proxies is None else read(proxies).decode("ascii"),
            names={
                "allowed-names": flags.requestheader_allowed_names,
                "username-headers": flags.requestheader_username_headers,
                "uid-headers": flags.requestheader_uid_headers,
                "group-headers": flags.requestheader_group_headers,
                "extra-headers-prefix": flags.requestheader_extra_headers_prefix,
            },
        ),
    )
