"""The states of machines (idle, computing, asleep, switching) and their power.

Booked as Batsim books: a span of a state counts when the state changes, so the idle time after a
machine's last job is in no sum.
"""

from collections import Counter
from typing import Final, Literal, NamedTuple

from dralab.kernel.clock import SECOND
from dralab.scenarios.errors import DecisionError
from dralab.simulation.engines.batch.durations import ExpectedRun
from dralab.simulation.host_sets import members, render
from dralab.simulation.lifecycle.outages import Outages
from dralab.simulation.platforms.platform import Host, Platform, Power

ON: Final = -1
OFF: Final = -2
Doing = Literal["idle", "computing", "sleeping", "switching_on", "switching_off", "unavailable"]
STATES: Final[tuple[Doing, ...]] = (
    "sleeping", "switching_on", "switching_off", "idle", "computing",
)  # fmt: skip


class StateRow(NamedTuple):
    """How many machines were in each state from a time on."""

    when: int
    counts: tuple[int, ...]


class PowerRow(NamedTuple):
    """Joules used until a time; `event` is s(tart), e(nd) or p(state).

    `least_watts` is what all machines draw that do nothing: before the change where machines begin
    to switch. `mean_watts` is the power since the row before; None where no time has passed.
    """

    when: int
    joules: float
    event: str
    least_watts: float
    mean_watts: float | None


class PstateRow(NamedTuple):
    """Machines that changed to a pstate; ON and OFF stand for those that begin to switch."""

    when: int
    machines: int
    pstate: int


class Hosts:
    """The machines of a platform, by their resource ids."""

    def __init__(self, platform: Platform, *, energy: bool) -> None:
        self.platform = platform
        count = platform.width
        self.energy = energy and all(host.power for host in platform.compute)
        self.doing: list[Doing] = ["idle"] * count
        self.jobs = [0] * count
        self.pstate = [0] * count
        self.since = [0] * count
        self.booked: Counter[Doing] = Counter()
        self.rows: list[StateRow] = []
        self.power_rows: list[PowerRow] = []
        self.pstate_rows: list[PstateRow] = [PstateRow(0, (1 << count) - 1, 0)] if count else []
        self.switches = 0
        self.grouped_switches = 0
        self.unavailable = 0
        self.outages = Outages()
        self._busy = 0
        self._unusable = 0
        self._counts: Counter[Doing] = Counter({"idle": count})
        self._joules = 0.0
        self._last_joules = 0.0
        self._last_when = 0
        self._last_row = 0
        self._first: float | None = None
        self._last_end: float | None = None
        self._watts = sum(self._power(index).idle for index in range(count)) if self.energy else 0.0

    @property
    def joules(self) -> float:
        """Joules used up to the last change."""
        return self._joules

    @property
    def joules_of_jobs(self) -> float:
        """Joules used from the first submission to the last end of a job; -1 without one."""
        if self._last_end is None or not self.energy:
            return -1.0 if self.energy else 0.0
        return self._last_end - (self._first or 0.0)

    @property
    def _least(self) -> float:
        """The power of all machines when idle, in watts."""
        return sum(map(self._watts_of, range(len(self.doing)))) if self.energy else 0.0

    def problem(self, machines: int, *, share: bool) -> str:
        """Return the reason that a job cannot start on these machines; empty if it can."""
        if machines & self.unavailable:
            return f"{render(machines & self.unavailable)} unavailable"
        if machines & self._unusable:
            return f"{render(machines & self._unusable)} asleep or switching"
        if not share and machines & self._busy:
            return f"{render(machines & self._busy)} busy"
        return ""

    def start_job(self, machines: int, run: ExpectedRun, now: int) -> None:
        """Let a job begin."""
        self._meter(now)
        for index in members(machines):
            self.jobs[index] += 1
            if self.jobs[index] == 1:
                self._becomes(index, "computing", now)
        self._busy |= machines
        if self.energy:
            self._watts += sum(self._extra(index, run) for index in members(machines))
        self._row(now, "s")

    def end_job(self, machines: int, run: ExpectedRun, started: int, now: int) -> float:
        """Let a job end; return the joules it drew."""
        self._meter(now)
        joules = 0.0
        for index in members(machines):
            self.jobs[index] -= 1
            if not self.jobs[index]:
                self._becomes(index, "idle", now)
                self._busy &= ~(1 << index)
            if self.energy:
                extra = self._extra(index, run)
                self._watts -= extra
                joules += (self._power(index).idle + extra) * (now - started) / SECOND
        self._last_end = self._joules
        self._row(now, "e")
        return joules

    def withdraw(self, machines: int, now: int) -> None:
        """Withdraw machines: they accept no new jobs, running jobs continue."""
        for index in members(machines & ~self.unavailable):
            self.outages.begin(str(index), now)
            if self.doing[index] == "idle":
                self._becomes(index, "unavailable", now)
        self.unavailable |= machines

    def restore(self, machines: int, now: int) -> None:
        """Let machines accept jobs again."""
        for index in members(machines & self.unavailable):
            self.outages.end(str(index), now)
        self.unavailable &= ~machines
        for index in members(machines):
            if self.doing[index] == "unavailable":
                self._becomes(index, "idle", now)

    def switch(self, machines: int, pstate: int, now: int) -> list[tuple[int, int]]:
        """Begin to switch idle machines; return when which machines arrive in the pstate."""
        if machines & self._busy:
            raise DecisionError(f"switched machines {render(machines & self._busy)}, which compute")
        self._meter(now)
        least = self._least
        self.grouped_switches += 1
        arrivals: dict[int, int] = {}
        ways: dict[int, int] = {}
        for index in members(machines):
            if index >= len(self.doing) or not 0 <= pstate < len(self._host(index).speeds):
                raise DecisionError(f"machine {index} has no pstate {pstate}")
            self.switches += 1
            before = self._watts_of(index)
            way, doing = self._way(index, pstate)
            if way is None:
                self.pstate[index] = pstate
                arrivals[now] = arrivals.get(now, 0) | 1 << index
            else:
                # A virtual pstate takes as long as one flop takes in it.
                when = now + round(SECOND / self._host(index).speeds[way])
                self.pstate[index] = way
                self._unusable |= 1 << index
                self._becomes(index, doing, now)
                arrivals[when] = arrivals.get(when, 0) | 1 << index
                sign = ON if doing == "switching_on" else OFF
                ways[sign] = ways.get(sign, 0) | 1 << index
            self._watts += self._watts_of(index) - before
        self.pstate_rows += [PstateRow(now, ways[sign], sign) for sign in (ON, OFF) if sign in ways]
        self._row(now, "p", least)
        return sorted(arrivals.items())

    def arrive(self, machines: int, pstate: int, now: int) -> None:
        """Set machines to a pstate; `switched` then records it."""
        self._meter(now)
        for index in members(machines):
            before = self._watts_of(index)
            self.pstate[index] = pstate
            asleep = pstate in self._sleeping(index)
            self._becomes(index, "sleeping" if asleep else "idle", now)
            self._unusable = (
                self._unusable | 1 << index if asleep else self._unusable & ~(1 << index)
            )
            self._watts += self._watts_of(index) - before

    def switched(self, machines: int, pstate: int, now: int) -> None:
        """Record that machines have arrived in a pstate."""
        self._meter(now)
        self.pstate_rows.append(PstateRow(now, machines, pstate))
        self._row(now, "p")

    def first_submission(self, now: int) -> None:
        """Start counting energy at the first submission."""
        if self._first is None:
            self._meter(now)
            self._first = self._joules

    # --- inside -----------------------------------------------------------------------------

    def _host(self, index: int) -> Host:
        return self.platform.compute[index]

    def _power(self, index: int) -> Power:
        power = self._host(index).power
        return power[min(self.pstate[index], len(power) - 1)]

    def _watts_of(self, index: int) -> float:
        return self._power(index).idle if self.energy else 0.0

    def _extra(self, index: int, run: ExpectedRun) -> float:
        """Watts above idle while a job runs; a delay draws idle power."""
        power = self._power(index)
        if not run.computes:
            return 0.0
        return power.least + (power.full - power.least) * run.use - power.idle

    def _sleeping(self, index: int) -> dict[int, tuple[int, int]]:
        text = self._host(index).properties.get("sleep_pstates", "")
        states = {}
        for part in text.split(","):
            numbers = part.split(":")
            if len(numbers) == 3:
                sleep, off, on = (int(number) for number in numbers)
                states[sleep] = (off, on)
        return states

    def _way(self, index: int, pstate: int) -> tuple[int | None, Doing]:
        """Return the transition pstate to a pstate, and the machine's state meanwhile."""
        sleeping = self._sleeping(index)
        if pstate in sleeping:
            return sleeping[pstate][0], "switching_off"
        if self.pstate[index] in sleeping:
            return sleeping[self.pstate[index]][1], "switching_on"
        return None, "idle"

    def _becomes(self, index: int, doing: Doing, now: int) -> None:
        old = self.doing[index]
        if doing == "idle" and self.unavailable >> index & 1:
            doing = "unavailable"
        self.booked[old] += now - self.since[index]
        self._counts[old] -= 1
        self._counts[doing] += 1
        self.doing[index] = doing
        self.since[index] = now

    def _meter(self, now: int) -> None:
        self._joules += self._watts * (now - self._last_when) / SECOND
        self._last_when = now

    def _row(self, now: int, event: str, least: float | None = None) -> None:
        self.rows.append(StateRow(now, tuple(self._counts[state] for state in STATES)))
        if self.energy:
            span = (now - self._last_row) / SECOND
            mean = (self._joules - self._last_joules) / span if span else None
            least = self._least if least is None else least
            self.power_rows.append(PowerRow(now, self._joules, event, least, mean))
            self._last_joules, self._last_row = self._joules, now
