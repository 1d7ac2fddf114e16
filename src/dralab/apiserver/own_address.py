"""What a server publishes about itself: its address, machine and authentication."""

import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from dralab.apiserver.access.authentication.settings import AuthenticationFlags
from dralab.apiserver.http.connections.serving import Certificate
from dralab.apiserver.verbs.kinds.outgoing_calls import OutgoingSettings
from dralab.apiserver.verbs.upkeep.own_objects import OwnAddress, authentication_data
from dralab.files.reading import read


def with_front_proxy(
    flags: AuthenticationFlags, outgoing: OutgoingSettings | None, made: Callable[[], Certificate]
) -> tuple[AuthenticationFlags, OutgoingSettings | None]:
    """Return both with the certificate that aggregated API servers know this server by.

    As kubeadm sets kube-apiserver up; where the operator names other files, these count.
    """
    named = outgoing is not None and outgoing.proxy_certificate is not None
    if named or flags.requestheader_client_ca_file is not None:
        return flags, outgoing
    files = made()
    flags = replace(
        flags,
        requestheader_client_ca_file=files.ca,
        requestheader_allowed_names=("front-proxy-client",),
        requestheader_username_headers=("X-Remote-User",),
        requestheader_group_headers=("X-Remote-Group",),
        requestheader_extra_headers_prefix=("X-Remote-Extra-",),
    )
    own = (str(files.certificate), str(files.key))
    return flags, replace(outgoing or OutgoingSettings(), proxy_certificate=own)


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
