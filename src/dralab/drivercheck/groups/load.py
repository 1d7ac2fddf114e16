"""Checks of a driver under load: a thousand claims, one after the other and several at once.

All checks look at one run; a report has it once for all of them.
"""

from dataclasses import dataclass
from typing import Final

from dralab.drivercheck.bench import Bench
from dralab.drivercheck.catalog import MUST, SHOULD, Catalog
from dralab.drivercheck.rules import CheckNeed, NotApplicable, require
from dralab.drivercheck.targets import Usage
from dralab.kernel.clock import SECOND

catalog: Final = Catalog("load")
NEEDS: Final = (CheckNeed.RESTART, CheckNeed.API)
MIB: Final = 1024 * 1024
AT_ONCE: Final = 8
SOURCE: Final = "a driver runs for months, on nodes whose pods live for seconds"
MOST_REQUESTS: Final = 5


@dataclass(frozen=True, slots=True)
class LoadRun:
    """What a run with many claims has shown."""

    claims: int
    errors: list[str]
    before: Usage | None
    after: Usage | None
    left: list[str]
    requests: int
    seconds: float


def _run(bench: Bench) -> LoadRun:
    return bench.shared.once("load", lambda: _measured(bench))


def _measured(bench: Bench) -> LoadRun:
    bench.start()
    devices = bench.free(min(AT_ONCE, len(bench.devices())))
    errors: list[str] = []
    done, begin = 0, bench.clock.now()

    def round_() -> None:
        nonlocal done
        claims = [bench.claim(device) for device in devices]
        for verb in ("prepare", "unprepare"):
            if verb == "prepare":
                answers = bench.call_prepare(*claims)
                texts = {uid: answer.error for uid, answer in answers.items()}
            else:
                texts = dict(bench.call_unprepare(*claims))
            for claim in claims:
                text = texts.get(claim.uid, "the claim is not answered")
                if text:
                    errors.append(f"{verb} of claim {done + 1}: {text}")
        for claim in claims:
            bench.forget_claim(claim)
        done += len(claims)
        bench.transcript.begin()

    # Language runtimes allocate some memory once: in these first rounds.
    for _ in range(max(1, bench.limits.claims // len(devices) // 5)):
        round_()
    files, before = bench.files(), _usage(bench)
    asked, counted = len(bench.api.calls), done
    end = bench.clock.now() + int(bench.limits.load * SECOND)
    while done < bench.limits.claims and not errors and bench.clock.now() < end:
        round_()
    requests = len(bench.api.calls) - asked
    left = sorted(bench.files() - files)
    per_claim = -(-requests // max(1, done - counted))
    return LoadRun(
        done, errors, before, _usage(bench), left, per_claim, (bench.clock.now() - begin) / SECOND
    )


def _usage(bench: Bench) -> Usage | None:
    return bench.instance.usage() if bench.instance is not None else None


def _require_growth(bench: Bench, quantity: str, most: int, unit: int = 1) -> None:
    """Require that the process grew by at most so many descriptors, threads or MiB of memory."""
    run = _run(bench)
    if run.before is None or run.after is None:
        raise NotApplicable("the driver's process is not known")
    grown = (getattr(run.after, quantity) - getattr(run.before, quantity)) / unit
    name = "MiB of memory" if quantity == "memory" else quantity
    require(grown <= most, f"after the claims it has {grown:.0f} more {name}: at most {most}")


@catalog.check(MUST, SOURCE, needs=NEEDS, fresh=True, long=True)
def claims(bench: Bench) -> None:
    """Claim after claim is prepared and unprepared, a thousand of them in calls of up to eight."""
    run = _run(bench)
    require(not run.errors, f"after {run.claims} claims: {'; '.join(run.errors[:3])}")


@catalog.check(
    SHOULD,
    "client-go's default of 5 requests a second makes it 3; drivers have a flag for it",
    needs=NEEDS,
    fresh=True,
    last=True,
)
def rate(bench: Bench) -> None:
    """A thousand claims take less than a minute."""
    run = _run(bench)
    require(
        run.claims >= bench.limits.claims or run.errors,
        f"{run.claims} claims took {run.seconds:.0f} s: is the driver's client limited to 5 "
        "requests a second?",
    )


@catalog.check(
    MUST,
    f"{SOURCE}: a file for each claim would fill the disk, and slow the runtime down",
    needs=NEEDS,
    fresh=True,
    last=True,
)
def files(bench: Bench) -> None:
    """No file is left of the claims."""
    left = _run(bench).left
    require(not left, f"{len(left)} files are left, the first is {left[:1]}")


@catalog.check(
    SHOULD,
    "Kubernetes: client-go's default is 5 requests a second for a whole driver",
    sentence=f"A claim costs at most {MOST_REQUESTS} requests to the API server.",
    needs=NEEDS,
    fresh=True,
    last=True,
)
def requests(bench: Bench) -> None:
    found = _run(bench).requests
    require(found <= MOST_REQUESTS, f"{found} requests for each claim")


@catalog.check(SHOULD, SOURCE, needs=[*NEEDS, CheckNeed.USAGE], fresh=True, last=True)
def memory(bench: Bench) -> None:
    """The memory of the process does not grow with the number of claims."""
    _require_growth(bench, "memory", bench.limits.memory, MIB)


@catalog.check(
    MUST,
    f"{SOURCE}: the limit is often 1,024",
    needs=[*NEEDS, CheckNeed.USAGE],
    fresh=True,
    last=True,
)
def descriptors(bench: Bench) -> None:
    """The process does not leave descriptors open."""
    _require_growth(bench, "descriptors", bench.limits.descriptors)


@catalog.check(SHOULD, SOURCE, needs=[*NEEDS, CheckNeed.USAGE], fresh=True, last=True)
def threads(bench: Bench) -> None:
    """The process does not leave threads behind."""
    _require_growth(bench, "threads", bench.limits.threads)
