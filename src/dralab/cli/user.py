"""`dralab user`: give people access to a cluster, by client certificates."""

import base64
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from dralab.cli._components import duration_of
from dralab.cli._connection import RequiredConnection
from dralab.cli._options import FILE, arg, opt, options
from dralab.cli._terminal import echo
from dralab.cli.apiserver import note
from dralab.cli.errors import UnusableInput
from dralab.cli.main import LazyGroup

if TYPE_CHECKING:
    from dralab.runtime.client import Client
    from dralab.values.json_types import JsonDict

SIGNER: Final = "kubernetes.io/kube-apiserver-client"
PATIENCE: Final = 15.0  # seconds for the controller to sign
EVERY: Final = 0.05
SECOND: Final = 1_000_000_000


@click.group(cls=LazyGroup)
def group() -> None:
    """Give users access to a cluster.

    Example: `dralab user add jane --group team-a --write jane.kubeconfig`
    """


@group.command()
@options
def add(
    *,
    connection: RequiredConnection,
    name: str = arg(),
    groups: tuple[str, ...] = opt("May be repeated.", flags="--group", metavar="GROUP"),
    expires: str = opt("At least 10m.", metavar="DURATION", default="365d"),
    output: Path | None = opt(
        "Write the kubeconfig to this file, readable only by you.  [default: stdout]",
        FILE,
        flags="--write",
    ),
) -> None:
    """Print a kubeconfig with a client certificate for the user NAME.

    The certificate comes from a CertificateSigningRequest, which your own credentials create and
    approve and the cluster's controllers sign. A user is a name in a certificate: there is no
    object to list or delete. Roles decide what the user may do.

    Example: `dralab user add jane --group team-a --kubeconfig admin.kubeconfig`
    """
    from dralab.api.status import ApiError
    from dralab.runtime.new_kubeconfig import kubeconfig, write_privately

    seconds = duration_of(expires, "--expires") // SECOND
    if seconds < 600:
        raise click.BadParameter("must be at least 10m", param_hint="--expires")
    if not name or any(not group for group in groups):
        raise click.UsageError("the names of users and groups must not be empty")
    access = connection.access()
    if not access.server.startswith("https://"):
        raise click.UsageError(
            f"{access.server} is served without TLS: client certificates need it. Start the "
            "server without --plain"
        )
    client = connection.client()
    try:
        key, request = _request(name, groups)
        certificate = _certificate(client, name, request, seconds)
    except ApiError as error:
        raise click.ClickException(error.message) from error
    finally:
        client.close()
    text = kubeconfig(
        access.server,
        user=name,
        ca=access.ca or "",
        certificate=certificate,
        key=key,
        insecure=access.insecure,
    )
    if output is None:
        echo(text, nl=False)
    else:
        write_privately(output, text)
        note(f"wrote {output}: try kubectl --kubeconfig {output} auth whoami")
    note(f"give the user rights: kubectl create clusterrolebinding … --user={name}")


def _request(name: str, groups: tuple[str, ...]) -> tuple[str, bytes]:
    """Return a new private key and the request for its certificate, both as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    try:
        parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        parts.append(x509.NameAttribute(NameOID.COMMON_NAME, name))
    except ValueError as error:
        raise click.UsageError(f"not a name for a certificate: {error}") from error
    made = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(parts))
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return pem, made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def _certificate(client: "Client", name: str, request: bytes, seconds: int) -> str:
    """Return the signed certificate as PEM; what was needed for it is deleted. ApiError."""
    from dralab.runtime.client import amend
    from dralab.runtime.resources import CERTIFICATE_REQUESTS

    created = client.create(
        CERTIFICATE_REQUESTS,
        {
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"generateName": "dralab-user-"},
            "spec": {
                "request": base64.b64encode(request).decode(),
                "signerName": SIGNER,
                "usages": ["digital signature", "client auth"],
                "expirationSeconds": seconds,
            },
        },
    )
    where = created["metadata"]["name"]

    def approve(copy: "JsonDict") -> bool:
        copy.setdefault("status", {})["conditions"] = [
            {
                "type": "Approved",
                "status": "True",
                "reason": "DralabUserAdd",
                "message": f"approved by dralab user add {name}",
            }
        ]
        return True

    try:
        amend(client, CERTIFICATE_REQUESTS, created, approve, subresource="approval")
        waiting, waited = threading.Event(), 0.0
        while waited < PATIENCE:
            status = client.get(CERTIFICATE_REQUESTS, where).get("status") or {}
            if found := status.get("certificate"):
                return base64.b64decode(found).decode()
            failed = [_ for _ in status.get("conditions") or () if _.get("type") == "Failed"]
            if failed:
                raise click.ClickException(f"the signer refused: {failed[0].get('message')}")
            waiting.wait(EVERY)
            waited += EVERY
    finally:
        client.delete(CERTIFICATE_REQUESTS, where)
    raise UnusableInput(
        "the request was not signed: signing needs the controllers of `dralab up`, or of "
        "`dralab controllers --cluster-signing-cert-file … --cluster-signing-key-file …`"
    )
