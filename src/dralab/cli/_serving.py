"""Where and what a server serves, by the names of kube-apiserver's flags."""

import ipaddress
from pathlib import Path
from typing import Final

import click

SERVICES: Final = "10.0.0.0/24"
# Of a range of services: one address for the API, and some for others (kube-apiserver: at least 8).
SMALLEST: Final = 29


def listening_on(listen: str | None, address: str | None, port: int | None) -> str | None:
    """Return `ADDR:PORT` of --listen, or of --bind-address and --secure-port. UsageError."""
    if address is None and port is None:
        return listen
    if listen is not None:
        raise click.UsageError("--listen and --bind-address or --secure-port exclude each other")
    host = address or "127.0.0.1"
    return f"[{host}]:{port or 0}" if ":" in host else f"{host}:{port or 0}"


def files_of(certificate: Path | None, key: Path | None, *, tls: bool) -> tuple[Path, Path] | None:
    """Return the files of the server's certificate; None if none is given. UsageError."""
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise click.UsageError("--tls-cert-file and --tls-private-key-file go together")
    if not tls:
        raise click.UsageError("--tls-cert-file needs TLS: omit --plain")
    return certificate, key


def range_of(text: str | None) -> str:
    """Return the range of service addresses. BadParameter."""
    if text is None:
        return SERVICES
    hint = "--service-cluster-ip-range"
    try:
        found = ipaddress.IPv4Network(text)
    except ValueError as error:
        raise click.BadParameter(
            f"{text!r} is not an IPv4 network such as {SERVICES}: {error}", param_hint=hint
        ) from error
    if found.prefixlen > SMALLEST:
        raise click.BadParameter(f"{text} is too small: at most /{SMALLEST}", param_hint=hint)
    return str(found)


def switches_of(text: str, release: str = "") -> dict[str, bool]:
    """Return the switches of --runtime-config. BadParameter."""
    from dralab.apiserver.runtime_config import RuntimeConfigError, parse

    if not text:
        return {}
    try:
        return parse(text, release)
    except RuntimeConfigError as error:
        raise click.BadParameter(str(error), param_hint="--runtime-config") from error
