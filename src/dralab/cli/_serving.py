"""Where and what a server serves, and its audit log, by the names of kube-apiserver's flags."""

import ipaddress
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from dralab.cli._options import EXISTING, opt
from dralab.cli.errors import UnusableInput, refusing
from dralab.values.records import dataclass

if TYPE_CHECKING:
    from dralab.apiserver.access.audit.policy import AuditPolicy
    from dralab.apiserver.http.auditing import AuditSettings


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
    with refusing(RuntimeConfigError, option="--runtime-config"):
        return parse(text, release)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFlags:
    """The options of a command that serves an API."""

    audit_policy_file: Path | None = opt(
        "The audit policy (audit.k8s.io/v1), which selects the requests to record.",
        EXISTING,
        metavar="FILE",
    )
    audit_log_path: str = opt(
        "The audit log file, one line of JSON per stage; - is standard output.", metavar="FILE|-"
    )
    audit_log_maxsize: int = opt(
        "The size at which the audit log is rotated; 0: never.",
        least=0,
        metavar="MEGABYTES",
        default=100,
    )
    audit_log_maxbackup: int = opt(
        "Number of rotated audit logs to keep; 0 keeps all.", least=0, metavar="COUNT", default=10
    )

    def opener(self) -> "Callable[[], AuditSettings] | None":
        """Return a function that opens the audit log, or None. UsageError, UnusableInput."""
        if self.audit_policy_file is None and not self.audit_log_path:
            return None
        if self.audit_policy_file is None:
            raise click.UsageError(
                "--audit-log-path needs --audit-policy-file, which says what to record"
            )
        if not self.audit_log_path:
            raise click.UsageError("--audit-policy-file needs --audit-log-path, where records go")
        from dralab.apiserver.access.audit.policy import AuditPolicy, PolicyError

        with refusing(PolicyError):
            policy = AuditPolicy.read_file(self.audit_policy_file)
        return partial(self._opened, policy)

    def _opened(self, policy: "AuditPolicy") -> "AuditSettings":
        from dralab.apiserver.access.audit.log import AuditFile
        from dralab.apiserver.http.auditing import AuditSettings

        path = self.audit_log_path
        try:
            sink = AuditFile(
                path, max_size=self.audit_log_maxsize, max_backups=self.audit_log_maxbackup
            )
        except OSError as error:
            raise UnusableInput(f"cannot write the audit log {path}: {error.strerror}") from error
        return AuditSettings(policy=policy, sink=sink)
