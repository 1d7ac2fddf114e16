"""Rigid jobs in simulated time: which job runs where and when.

The rules are Batsim 4's: one message per instant, ends before submissions before calls; a job runs
for the shorter of its profile and its walltime (equal is WALLTIME_REACHED); decisions for unknown
or started jobs, or for busy or unavailable machines, stop the run with the name of the job. The
messages by which Batsim's parts learn of all that take no time here, unless `latency` is set.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import or_
from typing import Any, cast, get_args

from dralab.kernel.events import BEGINNING, DECIDING, ENDING, NORMAL, Event, Events
from dralab.scenarios.errors import DecisionError
from dralab.simulation.engines.batch.durations import Durations, ExpectedRun
from dralab.simulation.engines.batch.external import ExternalEvent
from dralab.simulation.engines.batch.hosts import Hosts
from dralab.simulation.engines.batch.messages import (
    BatchEvents,
    CallMeLater,
    ChangeJobState,
    Decision,
    JobEnd,
    JobScheduler,
    JobState,
    KillJobs,
    QueryEnergy,
    RegisterJob,
    RegisterProfile,
    RegistrationFinished,
    RejectJob,
    ResizeJob,
    SchedulerReply,
    SetJobMetadata,
    SimulationBegins,
    StartJob,
    SwitchPstate,
)
from dralab.simulation.engines.batch.messaging import BatsimServer
from dralab.simulation.host_sets import all_machines, members, render
from dralab.simulation.platforms.platform import Host, Platform, Way
from dralab.simulation.workloads.batsim_profiles import profile_of
from dralab.simulation.workloads.jobs import Delay, Job, Profile, Workload


@dataclass(slots=True)
class JobRecord:
    """The record of a job. Times in nanoseconds; `state` is None until it has ended."""

    job: Job
    state: JobState | None = None
    started: int | None = None
    ended: int | None = None
    machines: int = 0
    metadata: str = ""
    joules: float = 0.0
    reason: str = ""
    run: ExpectedRun | None = None
    end_event: Event | None = None
    known: bool = False
    # Since when it has its machines, and how much longer it takes with them than with its width.
    since: int = 0
    stretch: float = 1.0

    @property
    def runs(self) -> bool:
        """Whether it runs now."""
        return self.started is not None and self.ended is None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """Batsim's switches that change what is allowed or measured.

    With `latency` Batsim's own messages take the time that they take there (`messaging`).
    """

    energy: bool = False
    share_machines: bool = False
    dynamic_jobs: bool = False
    latency: bool = False
    forward_unknown_events: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)


class BatchSimulation:
    """One run. `run()` ends when nothing can happen any more."""

    def __init__(
        self,
        platform: Platform,
        workloads: Sequence[Workload],
        scheduler: JobScheduler,
        *,
        options: BatchOptions | None = None,
        external: Iterable[ExternalEvent] = (),
    ) -> None:
        self.platform = platform
        self.workloads = {workload.name: workload for workload in workloads}
        self.scheduler = scheduler
        self.options = BatchOptions() if options is None else options
        self.progress: Callable[[int, int], None] | None = None
        self.events = Events()
        self.records: dict[str, JobRecord] = {}
        self.finished: list[JobRecord] = []
        self.hosts = Hosts(platform, energy=self.options.energy)
        self.messages = 0
        self.shared_links = 0
        self.resized = 0
        self._durations = {w.name: Durations(w, platform) for w in workloads}
        self._everything = all_machines(platform.width)
        self._news: dict[str, Any] = {}
        self._asking: Event | None = None
        self._busy_until = 0
        self._begun = False
        self.steps = 0
        self._talking: dict[Way, int] = {}
        self._static_left = 0
        self._external_left = 0
        self._server = BatsimServer(self.events, platform, self) if self.options.latency else None
        self._load(workloads, external)

    def _load(self, workloads: Sequence[Workload], external: Iterable[ExternalEvent]) -> None:
        for workload in workloads:
            for job in workload.jobs:
                self.records[job.key] = JobRecord(job)
        # Jobs of one instant come in the order of their ids as text: w0!1, w0!10, w0!2.
        records = sorted(self.records.values(), key=lambda r: (r.job.submitted, r.job.key))
        self._static_left = len(records)
        if self._server is None:
            # One after the other; an event for each of a million takes its place.
            self._plan_submission(iter(records), self.events.reserve(len(records)))
        else:
            for workload in workloads:
                mine = [record for record in records if record.job.workload == workload.name]
                begin = partial(self._submit_from, mine, 0)
                self._server.send(None, None, begin)
        for event in sorted(external, key=lambda event: event.when):
            self._external_left += 1
            self.events.at(event.when, partial(self._happen, event), priority=NORMAL)

    # --- the run ----------------------------------------------------------------------------

    def run(
        self,
        until: int | None = None,
        stop: Callable[[], bool] | None = None,
        ended: int | None = None,
        steps: int | None = None,
    ) -> bool:
        """Run to the end, to a time, or until `ended` jobs; jobs still running then have no end.

        Return False if `stop` asked to leave off earlier, or so many `steps` are done; `run` again
        continues from there.
        """
        if not self._begun:
            self._begin()
        while (when := self.events.next_time()) is not None and (until is None or when <= until):
            if steps is not None and self.steps >= steps:
                return False
            self.events.step()
            self.steps += 1
            if stop is not None and stop():
                return False
            if ended is not None and len(self.finished) >= ended:
                break
        self.scheduler.end(self.events.now())
        return True

    def _begin(self) -> None:
        self._begun = True
        answer = self.scheduler.begin(
            SimulationBegins(
                platform=self.platform,
                workloads=tuple(self.workloads.values()),
                options={
                    "dynamic-jobs-enabled": self.options.dynamic_jobs,
                    "forward-unknown-events": self.options.forward_unknown_events,
                    "allow_compute_sharing": self.options.share_machines,
                    **self.options.settings,
                },
            )
        )
        if self._server is not None:
            self._server.begin(answer or SchedulerReply(()))
        elif answer is not None:
            self._busy_until = answer.busy_until or 0
            self._carry_out(answer, 0)

    @property
    def waiting(self) -> list[JobRecord]:
        """Jobs that were submitted and neither ran nor were refused."""
        return [r for r in self.records.values() if r.known and r.started is None and not r.state]

    def _tell(self, kind: str, *items: object) -> None:
        """Put something into the next message, and schedule one."""
        if kind:
            self._news.setdefault(kind, []).extend(items)
        if self._asking is None and self._server is None:
            when = max(self.events.now(), self._busy_until)
            self._asking = self.events.at(when, self._ask, priority=DECIDING)

    def _ask(self) -> None:
        self._asking = None
        now, answer = self.events.now(), self.ask() or SchedulerReply(())
        self._busy_until = max(now, answer.busy_until or now)
        self._carry_out(answer, now)

    def ask(self) -> SchedulerReply | None:
        """Ask the scheduler for decisions about the events; None if there are none."""
        if not self._news:
            return None
        news, self._news = self._news, {}
        fields: dict[str, Any] = {kind: tuple(items) for kind, items in news.items()}
        for kind in ("available", "unavailable"):
            fields[kind] = reduce(or_, fields.get(kind, ()), 0)
        for kind in ("no_more_jobs", "no_more_events"):
            fields[kind] = kind in fields
        self.messages += 1
        now = self.events.now()
        answer = self.scheduler.decide(BatchEvents(now=now, **fields))
        if self.progress is not None:
            self.progress(now, len(self.finished))
        return answer

    def _send(self, sender: Host | None, heard: Callable[[], None]) -> None:
        """Send something to Batsim's server, from a host or (None) the master."""
        if self._server is None:
            heard()
        else:
            self._server.send(sender, heard)

    def _carry_out(self, answer: SchedulerReply, now: int) -> None:
        for decision in answer.decisions:
            at = getattr(decision, "at", None)
            if at is not None and at > now:
                self.events.at(at, partial(self.carry_out, decision), priority=DECIDING)
            else:
                self.carry_out(decision)

    def carry_out(self, decision: Decision) -> None:
        """Carry out decisions. DecisionError: one is not allowed."""
        match decision:
            case StartJob():
                self._start(decision)
            case RejectJob():
                self._reject(decision)
            case KillJobs():
                self._kill(decision)
            case CallMeLater():
                when = max(decision.when, self.events.now())
                call = partial(self._send, None, partial(self._tell, "called", when))
                self.events.at(when, call, priority=NORMAL)
            case ResizeJob():
                self._resize(decision)
            case SwitchPstate():
                self._switch(decision)
            case SetJobMetadata():
                self._known(decision.key).metadata = decision.metadata
            case RegisterJob():
                self._register(decision.job)
            case RegisterProfile():
                self._add_profile(decision)
            case QueryEnergy():
                self._tell("answers", self.hosts.joules)
            case ChangeJobState():
                self._change_state(decision)
            case RegistrationFinished():
                pass  # whether it comes back to more jobs is nothing that a run waits for

    # --- jobs -------------------------------------------------------------------------------

    def _plan_submission(self, records: Iterator[JobRecord], number: int) -> None:
        record = next(records, None)
        if record is not None:
            submit = partial(self._submit_one_of, record, records, number)
            self.events.at(record.job.submitted, submit, priority=BEGINNING, number=number)

    def _submit_one_of(self, record: JobRecord, records: Iterator[JobRecord], number: int) -> None:
        self._plan_submission(records, number + 1)
        self._submit(record, static=True)

    def _submit(self, record: JobRecord, *, static: bool = False) -> None:
        record.known = True
        self._tell("submitted", record.job)
        if static:
            self.hosts.first_submission(self.events.now())
            self._static_left -= 1
            if not self._static_left:
                self._no_more_jobs()

    def _submit_from(self, records: Sequence[JobRecord], first: int) -> None:
        """Submit jobs as Batsim's submitter does: those of one time together, then sleep.

        It sleeps from when it has submitted for as long as lies between the times of the jobs,
        so that each submission but the first is late by the time that one takes.
        """
        self._submit_at(records, first, self.events.now())

    def _submit_at(self, records: Sequence[JobRecord], first: int, clock: int) -> None:
        now, server = self.events.now(), self._server
        if server is None or first == len(records):
            self._send(None, self._no_more_jobs)
            return
        due = records[first].job.submitted
        if due > clock:
            when = now + due - clock
            self.events.at(when, partial(self._submit_at, records, first, when))
            return
        self.hosts.first_submission(now)
        last = first
        while last < len(records) and records[last].job.submitted <= max(due, clock):
            last += 1
        together = records[first:last]
        following = partial(self._submit_at, records, last, clock)
        server.send(None, partial(self._submitted, together), following)

    def _submitted(self, records: Sequence[JobRecord]) -> None:
        for record in records:
            self._submit(record)

    def _no_more_jobs(self) -> None:
        self._tell("no_more_jobs", True)  # noqa: FBT003 - a flag in the message

    def _known(self, key: str) -> JobRecord:
        record = self.records.get(key)
        if record is None or not record.known:
            raise DecisionError(f"decided about job {key!r}, which was not submitted to it")
        return record

    def _start(self, decision: StartJob) -> None:
        record, now = self._known(decision.job.key), self.events.now()
        key, machines = decision.job.key, decision.machines
        if record.started is not None or record.state is not None:
            raise DecisionError(f"started job {key!r}, which had already been started or refused")
        if machines & ~self._everything:
            raise DecisionError(f"started job {key!r} on machines that do not exist")
        if machines.bit_count() != record.job.width and not decision.mapping:
            raise DecisionError(
                f"started job {key!r} on {machines.bit_count()} machines; it requests "
                f"{record.job.width}"
            )
        problem = self.hosts.problem(machines, share=self.options.share_machines)
        if problem:
            raise DecisionError(f"started job {key!r} on machines {render(machines)}: {problem}")
        chosen = tuple(self.platform.compute[index] for index in members(machines))
        if decision.mapping:
            ranks = sorted(decision.mapping.items(), key=lambda item: int(item[0]))
            chosen = tuple(chosen[int(index)] for _, index in ranks)
        record.run = run = self._durations[record.job.workload].expected_run(record.job, chosen)
        record.started = record.since = now
        record.machines = machines
        self._share_links(run)
        self.hosts.start_job(machines, run, now)
        length = run.duration
        self._let_end(record, length if record.stretch == 1 else int(length * record.stretch))

    def _let_end(self, record: JobRecord, length: int) -> None:
        """Plan the end of a job that has so much time left, or reaches its walltime before."""
        profile = self.workloads[record.job.workload].profiles[record.job.profile]
        code, limit = profile.code, record.job.walltime
        state: JobState = "COMPLETED_FAILED" if code else "COMPLETED_SUCCESSFULLY"
        if limit is not None:
            limit -= self.events.now() - (record.started or 0)
        if limit is not None and limit <= length:
            state, length = "COMPLETED_WALLTIME_REACHED", limit
        record.end_event = self.events.after(
            length,
            partial(self._over, record, state, code),
            priority=ENDING if self._server is None else NORMAL,
        )

    def _resize(self, decision: ResizeJob) -> None:
        """Change the machines of a job; its work is what it was, and shared among them."""
        record, now = self._known(decision.key), self.events.now()
        run, before = record.run, record.job.width
        profile = self._profiles_of(record.job)[record.job.profile]
        if record.state is not None or not isinstance(profile, Delay):
            what = "is over" if record.state is not None else "has no mere duration"
            raise DecisionError(f"resized job {decision.key!r}, which {what}")
        self.resized += 1
        if run is None or record.end_event is None:
            record.job = replace(record.job, width=decision.width)
            record.stretch *= before / decision.width
            return
        problem = self.hosts.problem(decision.machines & ~record.machines, share=False)
        if problem:
            raise DecisionError(f"resized job {decision.key!r} to {problem}")
        left = record.stretch * run.duration - (now - record.since)
        had = record.machines.bit_count()
        record.end_event.cancel()
        record.joules += self.hosts.end_job(record.machines, run, record.since, now)
        self.hosts.start_job(decision.machines, run, now)
        record.machines, record.since = decision.machines, now
        left *= had / decision.width
        record.stretch = left / run.duration if run.duration else 1.0
        self._let_end(record, int(left))

    def _share_links(self, run: ExpectedRun) -> None:
        """Count jobs with optimistic times: another one was sending over the same link."""
        if any(self._talking.get(way) for way in run.ways):
            self.shared_links += 1
        for way in run.ways:
            self._talking[way] = self._talking.get(way, 0) + 1

    def _over(self, record: JobRecord, state: JobState, code: int) -> None:
        ended = self._end(record, state, code)
        first = self.platform.compute[next(iter(members(record.machines)))]
        self._send(first, partial(self._tell, "ended", ended))

    def _end(self, record: JobRecord, state: JobState, code: int) -> JobEnd:
        now = self.events.now()
        record.state, record.ended = state, now
        run = record.run
        if run is not None and record.started is not None:
            record.joules += self.hosts.end_job(record.machines, run, record.since, now)
            for way in run.ways:
                self._talking[way] -= 1
        self.finished.append(record)
        return JobEnd(record.job, state, code, record.machines, now)

    def _reject(self, decision: RejectJob) -> None:
        record = self._known(decision.job.key)
        if record.started is not None or record.state is not None:
            raise DecisionError(f"refused job {decision.job.key!r} after it had been decided")
        record.state, record.reason = "REJECTED", decision.reason
        self.finished.append(record)

    def _kill(self, decision: KillJobs) -> None:
        killed, ended = [], []
        for key in decision.keys:
            record = self._known(key)
            if record.started is None:
                raise DecisionError(f"killed job {key!r}, which does not run")
            if record.ended is None and record.end_event is not None:
                record.end_event.cancel()
                length = record.run.duration if record.run else 0
                done = (self.events.now() - record.started) / length if length else 1.0
                killed.append((record.job, done))
                ended.append(self._end(record, "COMPLETED_KILLED", -1))
        self._send(None, partial(self._killed, ended, killed))

    def _killed(self, ended: Sequence[JobEnd], killed: Sequence[tuple[Job, float]]) -> None:
        if ended:
            self._tell("ended", *ended)
        self._tell("killed", *killed)

    def _register(self, job: Job) -> None:
        if not self.options.dynamic_jobs:
            raise DecisionError(f"registered job {job.key!r}, but dynamic jobs are not enabled")
        if job.key in self.records:
            raise DecisionError(f"registered job {job.key!r}, which already exists")
        if job.profile not in self._profiles_of(job):
            raise DecisionError(f"registered job {job.key!r} with the unknown {job.profile!r}")
        record = self.records[job.key] = JobRecord(job)
        record.known = True
        if self.options.settings.get("dynamic-jobs-acknowledged"):
            self._tell("submitted", job)

    def _profiles_of(self, job: Job) -> Mapping[str, Profile]:
        workload = self.workloads.get(job.workload)
        return {} if workload is None else workload.profiles

    def _add_profile(self, decision: RegisterProfile) -> None:
        old = self.workloads.get(decision.workload) or Workload(
            name=decision.workload, jobs=(), profiles={}, machines=0
        )
        profile = profile_of(decision.workload, decision.name, decision.profile)
        workload = replace(old, profiles={**old.profiles, decision.name: profile})
        self.workloads[decision.workload] = workload
        self._durations[decision.workload] = Durations(workload, self.platform)

    def _change_state(self, decision: ChangeJobState) -> None:
        record = self._known(decision.key)
        if record.runs or decision.state not in get_args(JobState):
            raise DecisionError(f"cannot set job {decision.key!r} to {decision.state!r}")
        record.state = cast("JobState", decision.state)

    # --- machines ---------------------------------------------------------------------------

    def _happen(self, event: ExternalEvent) -> None:
        self._external_left -= 1
        if event.machines & ~self._everything:
            raise DecisionError(
                f"machines {render(event.machines)} of an event do not exist", scheduler="events"
            )
        if event.type == "machine_unavailable":
            self.hosts.withdraw(event.machines, event.when)
            self._tell("unavailable", event.machines)
        elif event.type == "machine_available":
            self.hosts.restore(event.machines, event.when)
            self._tell("available", event.machines)
        elif self.options.forward_unknown_events:
            self._tell("unknown", event.source)
        if not self._external_left:
            self._tell("no_more_events", True)  # noqa: FBT003 - a flag in the message

    def _switch(self, decision: SwitchPstate) -> None:
        pending = _PendingSwitch(decision.machines, decision.pstate, decision.machines)
        arrivals = self.hosts.switch(decision.machines, decision.pstate, self.events.now())
        for when, machines in arrivals:
            self.events.at(when, partial(self._arrived, pending, machines), priority=NORMAL)

    def _arrived(self, pending: "_PendingSwitch", machines: int) -> None:
        self.hosts.arrive(machines, pending.pstate, self.events.now())
        for index in members(machines):
            self._send(self.platform.compute[index], partial(self._switched, pending, 1 << index))

    def _switched(self, pending: "_PendingSwitch", machine: int) -> None:
        """Send the event when the last machine of the decision has switched."""
        pending.left &= ~machine
        if not pending.left:
            self.hosts.switched(pending.machines, pending.pstate, self.events.now())
            self._tell("switched", (pending.machines, pending.pstate))


@dataclass(slots=True)
class _PendingSwitch:
    """Machines that one decision switches, and those still switching."""

    machines: int
    pstate: int
    left: int
