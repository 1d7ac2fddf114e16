"""`dralab record`: write down what happens in a cluster."""

import hashlib
import hmac
import secrets
import signal
import threading
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from dralab.cli import objects
from dralab.cli._connection import NO_CLUSTER, ClusterConnection
from dralab.cli._inventory import InventorySource, default_kubeconfig
from dralab.cli._options import FILE, opt, options
from dralab.cli._output import echo_objects
from dralab.cli._terminal import echo
from dralab.cli.errors import UnusableInput, refusing
from dralab.cli.generations import FILES
from dralab.values.json_types import JsonDict

if TYPE_CHECKING:
    from dralab.runtime.recorder import RecordingFile

ROLE: Final = "dralab-record"
KEY_BYTES: Final = 32
# So long a server has before its silence is told.
PATIENCE: Final = 10.0


@click.command(
    epilog="""Examples:

\b
  dralab record --kubeconfig ~/.kube/config --write week.dralab
  dralab record --role | kubectl apply -f -
  dralab record --write week.dralab --anonymize
  dralab record -f audit.log --write week.dralab
  dralab record -f mon.snapshot -f tue.snapshot --write week.dralab
  dralab record -f trace.sktrace -f nodes.yaml --write week.dralab
"""
)
@options
def record(
    *,
    connection: ClusterConnection,
    write: Path = opt(
        "Append to this file; one that exists is continued.", FILE, default="cluster.dralab"
    ),
    anonymize: bool = opt("Rename nodes, pods and so on."),
    max_size: int = opt("Stop at this many MiB.", least=1, default=1024),
    max_rate: int = opt(
        "Write at most this many changes a second; merge more changes of one object into one.",
        least=1,
        default=2000,
    ),
    files: tuple[str, ...] = FILES,
    role: bool = opt("Print the ClusterRole that a recorder needs, and exit."),
) -> None:
    """Record a cluster until Ctrl-C: nodes, devices, claims and pods, and each change of them.

    Reads the cluster of --kubeconfig, $KUBECONFIG or ~/.kube/config by lists and watches, and
    writes nothing to it. Of an object it keeps what `dralab snapshot` keeps: no Secrets,
    environment values, commands, images or annotations. With --anonymize, names, namespaces,
    labels, uids and serial numbers are replaced by hashes with a key in FILE.key, which only you
    can read. A recorder that is started again continues its file; what happened in between is read
    from a list.

    With -f, the recording is made from audit logs (events of the level RequestResponse), of several
    snapshots, must-gathers or dumps of one cluster, or of a trace of SimKube and a file with nodes.
    """
    from dralab.api.snapshots.errors import SnapshotError

    if role:
        from dralab.runtime.recorder import role as role_named

        echo_objects([role_named(ROLE)], "yaml")
        return
    if files:
        if connection:
            raise click.UsageError("give either -f or a cluster")
        with refusing(SnapshotError):
            _convert(files, write, anonymize=anonymize)
        return
    if not connection:
        connection = replace(connection, kubeconfig=default_kubeconfig())
    if not connection:
        raise click.UsageError("nothing to record: name a cluster with --kubeconfig or --server")
    with refusing(SnapshotError):
        _record(connection, write, anonymize=anonymize, most=max_size << 20, rate=max_rate)


def _record(
    connection: ClusterConnection, path: Path, *, anonymize: bool, most: int, rate: int
) -> None:
    from dralab.runtime.live import LiveEngine
    from dralab.runtime.recorder import ClusterRecorder

    # A server that is away for a moment is no reason to stop a recording of a week.
    client = connection.client(patient=True)
    file = opened(path, client.access.server, anonymize=anonymize)
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    engine = LiveEngine(name="record")
    recorder = ClusterRecorder(engine, client, file, rate=rate, most=most, full=over.set)
    recorder.start()
    engine.start()
    how = "continuing" if file.is_continued else "recording to"
    echo(f"{client.access.server}: {how} {path}", err=True)
    if not over.wait(PATIENCE) and recorder.unread:
        echo(f"not recorded, not allowed or no answer: {', '.join(recorder.unread)}", err=True)
    over.wait()
    engine.stop()
    recorder.stop()
    client.close()
    if recorder.failed is not None:
        raise UnusableInput(f"{path}: cannot be written: {recorder.failed.strerror}")
    file.close()
    if recorder.is_full:
        echo(f"stopped at --max-size: {path} has {file.size:,} bytes", err=True)
    echo(f"recorded {file.changes:,} changes; {path} has {file.size:,} bytes", err=True)


def _convert(files: Sequence[str], path: Path, *, anonymize: bool) -> None:
    """Write the history of an audit log, or of snapshots, to a new recording."""
    from dralab.runtime import histories

    if path.exists():
        raise UnusableInput(f"{path} already exists; choose another file with --write")
    logs: list[bytes] = []
    traces: list[bytes] = []
    snapshots: list[list[JsonDict]] = []
    for name in files:
        content = _content(name) if Path(name).is_file() else b""
        if histories.is_simkube_trace(content):
            traces.append(content)
        elif histories.is_audit_log(content):
            logs += content.splitlines()
        else:
            source = InventorySource(files=(name,), connection=NO_CLUSTER)
            snapshots.append(objects.inventory(source))
    if logs and snapshots:
        raise click.UsageError("give either audit logs or snapshots with -f")
    if len(traces) > 1 or (traces and (logs or len(snapshots) > 1)):
        raise click.UsageError("give one trace of SimKube, and one file with nodes, with -f")
    with refusing(ValueError):
        log = histories.AuditLog(logs) if not traces else histories.SimkubeTrace(traces[0])
    file = opened(path, ", ".join(Path(name).name for name in files), anonymize=anonymize)
    if isinstance(log, histories.SimkubeTrace):
        fleet = [*chain.from_iterable(snapshots)]
        log.write(file, fleet)
        for kind, count in log.missing.items():
            echo(f"not in the trace: the pods of {count} times a {kind}", err=True)
        if not any(each["kind"] == "Node" for each in fleet):
            echo("the trace has no nodes: give some with another -f, or in a scenario", err=True)
    else:
        log.write(file)
        histories.write_series(file, snapshots)
        for what, count in log.missing.most_common():
            echo(f"not in the log: {count} times the object of a {what}", err=True)
    file.close()
    echo(f"recorded {file.changes:,} changes; {path} has {file.size:,} bytes", err=True)


def _content(name: str) -> bytes:
    """Return a file, unpacked. UnusableInput."""
    from dralab.files.sources import SourceError, files_of

    for found in files_of([name]):
        if isinstance(found, SourceError):
            raise UnusableInput(f"{name}: {found.why}")
        return found.content
    return b""


def opened(path: Path, source: str, *, anonymize: bool) -> "RecordingFile":
    """Return the recording of a source to write into. SnapshotError, UnusableInput."""
    from dralab.api.snapshots.anonymous import keyed
    from dralab.runtime.recorder import RecordingFile

    try:
        if not anonymize:
            return RecordingFile(path, {"anonymized": False, "of": source})
        key = _key(path.with_name(f"{path.name}.key"), is_new=not path.exists())
        of = hmac.digest(key, source.encode(), hashlib.sha256).hex()[:16]
        return RecordingFile(path, {"anonymized": True, "of": of}, keyed(key))
    except OSError as error:
        raise UnusableInput(f"{error.filename or path}: {error.strerror or error}") from error


def _key(path: Path, *, is_new: bool) -> bytes:
    """Return the key of a recording's names. UnusableInput, OSError."""
    from dralab.files.reading import read_own
    from dralab.runtime.new_kubeconfig import write_privately

    if is_new and not path.exists():
        write_privately(path, secrets.token_hex(KEY_BYTES))
    try:
        key = bytes.fromhex(read_own(path, 2 * KEY_BYTES).decode())
    except FileNotFoundError:
        raise UnusableInput(
            f"{path}: the key of the recording's names is missing: names of a continued recording "
            "would not fit; record to another file"
        ) from None
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise UnusableInput(f"{path}: is not a key: {KEY_BYTES} bytes in hexadecimal digits")
    return key
