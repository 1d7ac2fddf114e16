"""The result of a run with an external scheduler, with notes on its reliability."""

from dralab.kernel.clock import rfc3339
from dralab.simulation.engines.external.driver import ClockedRun, DriverReport
from dralab.simulation.engines.external.served_cluster import ServedCluster, ServedTask
from dralab.simulation.results.result import Result, Task
from dralab.simulation.workloads.openb import WHOLE_GPU


def result(driver: ClockedRun, *, name: str, seed: int, complete: bool) -> Result:
    """Return what became of the pods; times count from the beginning of the run."""
    served = driver.served
    nodes = served.capacity.nodes
    place = {lane: index for index, lane in enumerate(nodes)}
    capacity = {"cpu": sum(node.cpu for node in nodes.values())}
    gpus = sum(node.gpus for node in nodes.values())
    if gpus:
        capacity["gpu"] = WHOLE_GPU * gpus
    return Result(
        name=name,
        scheduler="external",
        seed=seed,
        tasks=[_task(item, served, place) for item in served.pods.values()],
        samples=served.samples,
        lanes=list(nodes),
        capacity=capacity,
        end=served.agenda.now() - served.begin,
        notes=notes(driver.report, served),
        complete=complete,
    )


def notes(report: DriverReport, served: ServedCluster) -> list[str]:
    """Return what a reader has to know: first of all the late binds."""
    found = [
        f"late binds: {report.late_binds}",
        *_how_time_was_kept(report),
        f"the clock showed {rfc3339(served.begin)} when the run began",
    ]
    if report.ended:
        found.append(
            f"stopped early at {(served.agenda.now() - served.begin) / 1e9:g} s: {report.ended}"
        )
    if report.polls:
        found.append("the scheduler polls: each step that needed it waited for its next list calls")
    if report.terse:
        found.append("the scheduler did not answer about pods that fit nowhere")
    if report.restarts:
        found.append(f"the scheduler exited and was restarted {report.restarts} times")
    if served.resumed:
        found.append(f"resumed from a checkpoint {served.resumed} times")
    if served.deleted:
        found.append(f"{served.deleted} running pods were deleted (preempted) and created again")
    pending = sorted(key for key in served.pods if served.waits(key))
    for text, keys in (
        ("never bound", pending),
        ("got no answer in time", report.unanswered),
        (
            "had room but were not bound in time: in back-off (real seconds), or for the "
            "scheduler's own reasons",
            report.passed_over,
        ),
        ("name a scheduler that is not part of the run", report.nobodys),
        ("bound where there was no room", served.over_capacity),
    ):
        if keys:
            shown = ", ".join(keys[:5]) + (", …" if len(keys) > 5 else "")
            found.append(f"{len(keys)} pods {text}: {shown}")
    if any(item.pod.gang for item in served.pods.values()):
        found.append("the scheduler does not see gangs: their pods were submitted one by one")
    return found


def _how_time_was_kept(report: DriverReport) -> list[str]:
    requests = (
        f"{report.requests} requests ({report.event_writes} of them writes of events, "
        f"{report.renewals} of leases)"
    )
    if not report.clock:
        return [
            f"{report.steps} steps, {requests}, quiet period {report.quiet_period:g} s",
            f"no virtual clock ({report.why_no_clock}): silence counts as an answer",
            "an external scheduler breaks ties at random and in real time: totals repeat, the "
            "times of individual pods may not",
        ]
    found = [
        "virtual clock: it stands still until all programs and the server are idle, so binds "
        "cannot be late",
        f"{report.steps} steps, {report.jumps} jumps of the clock, {requests}",
    ]
    if report.crept:
        found.append(
            f"{report.crept / 1e9:g} s passed because a program waited by reading the clock"
        )
    return found + [f"clock: {line}" for line in report.clock_notes]


def _task(item: ServedTask, served: ServedCluster, place: dict[str, int]) -> Task:
    lanes = [place[item.node]] if item.node in place else []
    refusal = served.refusal(item) if item.state == "Pending" else ""
    return item.task(lanes, begin=served.begin, reason=refusal)
