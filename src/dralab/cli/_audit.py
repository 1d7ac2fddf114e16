"""The options of the audit log, by the names of kube-apiserver's flags."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dralab.cli._options import EXISTING, opt
from dralab.cli.errors import UnusableInput

if TYPE_CHECKING:
    from dralab.apiserver.audit.policy import AuditPolicy
    from dralab.apiserver.http.auditing import AuditSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFlags:
    """The options of a command that serves an API."""

    audit_policy_file: Path | None = opt(
        "The audit policy (audit.k8s.io/v1), which selects the requests to record.",
        EXISTING,
        metavar="FILE",
    )
    audit_log_path: str = opt(
        "The audit log file, one line of JSON per stage; - is standard output.",
        metavar="FILE|-",
        default="",
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
        """Return what opens the audit log; None if there is none. UsageError, UnusableInput."""
        if self.audit_policy_file is None and not self.audit_log_path:
            return None
        if self.audit_policy_file is None:
            raise click.UsageError(
                "--audit-log-path needs --audit-policy-file, which says what to record"
            )
        if not self.audit_log_path:
            raise click.UsageError("--audit-policy-file needs --audit-log-path, where records go")
        from dralab.apiserver.audit.policy import AuditPolicy, PolicyError

        try:
            policy = AuditPolicy.read_file(self.audit_policy_file)
        except PolicyError as error:
            raise UnusableInput(str(error)) from error
        return partial(self._opened, policy)

    def _opened(self, policy: "AuditPolicy") -> "AuditSettings":
        from dralab.apiserver.audit.log import AuditFile
        from dralab.apiserver.http.auditing import AuditSettings

        path = self.audit_log_path
        try:
            sink = AuditFile(
                path, max_size=self.audit_log_maxsize, max_backups=self.audit_log_maxbackup
            )
        except OSError as error:
            raise UnusableInput(f"cannot write the audit log {path}: {error.strerror}") from error
        return AuditSettings(policy=policy, sink=sink)
