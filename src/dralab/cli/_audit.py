"""The options of the audit log, by the names of kube-apiserver's flags."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from dralab.cli.errors import UnusableInput

if TYPE_CHECKING:
    from dralab.apiserver.audit.policy import AuditPolicy
    from dralab.apiserver.http.auditing import AuditSettings

Command = TypeVar("Command", bound=Callable[..., Any])
OPTIONS: Final = [
    click.option(
        "--audit-policy-file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="The audit policy (audit.k8s.io/v1), which selects the requests to record.",
    ),
    click.option(
        "--audit-log-path",
        metavar="FILE|-",
        default="",
        help="The audit log file, one line of JSON per stage; - is standard output.",
    ),
    click.option(
        "--audit-log-maxsize",
        type=click.IntRange(min=0),
        metavar="MEGABYTES",
        default=100,
        show_default=True,
        help="The size at which the audit log is rotated; 0: never.",
    ),
    click.option(
        "--audit-log-maxbackup",
        type=click.IntRange(min=0),
        metavar="COUNT",
        default=10,
        show_default=True,
        help="Number of rotated audit logs to keep; 0 keeps all.",
    ),
]


def audit_options(command: Command) -> Command:
    """Add the options to a command that serves an API."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def audit_of(
    policy_file: Path | None, log_path: str, max_size: int, max_backups: int
) -> "Callable[[], AuditSettings] | None":
    """Return what opens the audit log; None if there is none. UsageError, UnusableInput."""
    if policy_file is None and not log_path:
        return None
    if policy_file is None:
        raise click.UsageError(
            "--audit-log-path needs --audit-policy-file, which says what to record"
        )
    if not log_path:
        raise click.UsageError("--audit-policy-file needs --audit-log-path, where records go")
    from dralab.apiserver.audit.policy import AuditPolicy, PolicyError

    try:
        policy = AuditPolicy.read_file(policy_file)
    except PolicyError as error:
        raise UnusableInput(str(error)) from error
    return partial(_opened, policy, log_path, max_size, max_backups)


def _opened(policy: "AuditPolicy", path: str, max_size: int, max_backups: int) -> "AuditSettings":
    from dralab.apiserver.audit.log import AuditFile
    from dralab.apiserver.http.auditing import AuditSettings

    try:
        sink = AuditFile(path, max_size=max_size, max_backups=max_backups)
    except OSError as error:
        raise UnusableInput(f"cannot write the audit log {path}: {error.strerror}") from error
    return AuditSettings(policy=policy, sink=sink)
