"""A whole run with an outside scheduler: serve, start it, drive it, stop it."""

import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

from dralab.cluster import Cluster, Options
from dralab.kernel.clock import ManualClock, from_rfc3339
from dralab.simulation.errors import DecisionError, InputError
from dralab.simulation.outside.driver import Driver, Manners
from dralab.simulation.results import Result
from dralab.simulation.scenarios.scenario import Scenario

START: Final = "2026-01-01T00:00:00Z"
GRACE: Final = 10.0

CONFIGURATION: Final = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: false
clientConnection:
  kubeconfig: {kubeconfig}
  contentType: application/json
  qps: 1000
  burst: 1000
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """The scheduler: a command to start, or none where someone starts it by hand.

    In the command `{kubeconfig}`, `{server}` and `{config}` (a KubeSchedulerConfiguration without
    leader election) are replaced; KUBECONFIG and SERVER are set, too.
    """

    command: Sequence[str] = ()
    folder: Path | None = None
    port: int = 0
    tls: bool = False
    log: Path | None = None


def manners_of(scenario: Scenario) -> Manners:
    """Return what the scenario's `external:` says; InputError for what it may not say."""
    known = {item.name for item in fields(Manners)}
    given = {key: value for key, value in scenario.external.items() if key in known}
    unknown = set(scenario.external) - known - {"command", "port", "tls"}
    if unknown:
        raise InputError(
            scenario.file,
            f"is not known here; known are {', '.join(sorted(known | {'command', 'port', 'tls'}))}",
            where=f"external.{min(unknown)}",
        )
    for key, value in given.items():
        wanted = type(getattr(Manners(), key))
        if not isinstance(value, (int, float) if wanted is float else wanted):
            raise InputError(scenario.file, f"must be a {wanted.__name__}", where=f"external.{key}")
    return Manners(**given)  # type: ignore[arg-type]  # checked above


def outside_of(scenario: Scenario, command: str | None = None) -> Outside:
    """Return the scheduler of a scenario; `command` replaces the one it names."""
    given = scenario.external.get("command", ())
    words = shlex.split(command) if command else given
    if isinstance(words, str):
        words = shlex.split(words)
    if not isinstance(words, Sequence) or not all(isinstance(word, str) for word in words):
        raise InputError(
            scenario.file, "must be a text or a list of texts", where="external.command"
        )
    port, tls = scenario.external.get("port", 0), scenario.external.get("tls", False)
    if not isinstance(port, int) or not 0 <= port < 65536:
        raise InputError(scenario.file, "must be a port", where="external.port")
    return Outside(command=tuple(words), folder=scenario.file.parent, port=port, tls=bool(tls))


def run(
    scenario: Scenario,
    outside: Outside,
    *,
    say: Callable[[str], None] = lambda _: None,
    progress: Callable[[int, int, int], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Result:
    """Run a scenario with an outside scheduler; DecisionError where it does not play along."""
    manners = manners_of(scenario)
    clock = ManualClock(from_rfc3339(START))
    pods = scenario.pods()
    with Cluster(Options(port=outside.port, tls=outside.tls), clock=clock, seed=1) as cluster:
        driver = Driver(cluster, clock, scenario.fleet.as_nodes(), pods, manners)
        driver.prepare()
        say(f"serving {cluster.url}; KUBECONFIG={cluster.kubeconfig}")
        with started(outside, cluster) as process:
            if process is not None:
                driver.alive = lambda: process.poll() is None
            driver.meet()

            def tell(now: int, over: int) -> None:
                if progress is not None:
                    progress(now, over, len(pods))

            complete = driver.run(tell, stop)
        return driver.result(name=scenario.name, seed=scenario.seed, complete=complete)


@contextmanager
def started(outside: Outside, cluster: Cluster) -> Iterator[subprocess.Popen[bytes] | None]:
    """Start the scheduler, and end it with SIGTERM."""
    if not outside.command:
        yield None
        return
    configuration = cluster.kubeconfig.parent / "scheduler.yaml"
    configuration.write_text(CONFIGURATION.format(kubeconfig=cluster.kubeconfig), encoding="utf-8")
    values = {
        "kubeconfig": str(cluster.kubeconfig),
        "server": cluster.url,
        "config": str(configuration),
        "port": cluster.url.rsplit(":", 1)[-1],
    }
    words = [word.format(**values) for word in outside.command]
    log = (outside.log or cluster.kubeconfig.parent / "scheduler.log").open("wb")
    environment = os.environ | {
        "KUBECONFIG": values["kubeconfig"],
        "SERVER": cluster.url.split("://", 1)[1],
    }
    try:
        process = subprocess.Popen(  # noqa: S603 - the scheduler that the user names
            words, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=outside.folder
        )
    except OSError as error:
        log.close()
        raise DecisionError(f"cannot be started: {error}", scheduler=words[0]) from None
    try:
        yield process
    except DecisionError as error:
        tail = Path(log.name).read_text(encoding="utf-8", errors="replace").strip()[-800:]
        raise DecisionError(f"{error.problem}; its last words: {tail or 'none'}") from None
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()
