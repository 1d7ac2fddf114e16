"""Trials as a test of pytest or unittest: `@dralab.simulation_test`."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

from dralab.api.releases import parse
from dralab.testing import replays
from dralab.testing.scenario import load
from dralab.testing.search import search, trial_numbers
from dralab.testing.trial import expected_end, systematic_schedules
from dralab.testing.trial_scenario import TrialScenario

RESULT = "result"


def simulation_test(
    scenario: str | Path | TrialScenario,
    *,
    seeds: int | None = None,
    first: int = 0,
    version: str = "",
    systematic: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator of a test: the scenario must pass with all seeds before the test runs.

    `scenario` is a file beside the test, or a scenario as a value; `version` is the release of
    Kubernetes that its server is of, such as "1.34", in place of the scenario's own. `seeds` trials
    are run, 100 by default. With `systematic` each trial has one fault, and by default there is one
    for each place that is unlike the others. A test with a parameter `result` is given the outcome
    of all trials (`SearchResult`). AssertionError: the shortest schedule of each different failure,
    and its timeline. InputError, ScenarioFails: it cannot be used.

        @dralab.simulation_test("scenario.yaml", seeds=200)
        def test_the_operator(result):
            assert len(result.coverage.counts) > 50
    """
    if seeds is not None and seeds < 1:
        raise ValueError(f"seeds must be at least 1: {seeds}")

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(test)
        wants_result = RESULT in signature.parameters
        folder = Path(inspect.getfile(test)).parent

        @wraps(test)
        def run(*given: Any, **named: Any) -> Any:
            # Of a path that is absolute the folder is dropped.
            used = scenario if isinstance(scenario, TrialScenario) else load(folder / scenario)
            if version:
                used = replace(used, cluster=replace(used.cluster, version=parse(version)))
            expected = expected_end(used)
            schedules = systematic_schedules(used, expected) if systematic else None
            numbers = trial_numbers(first, seeds, schedules)
            found = search(used, expected, numbers, systematic=schedules)
            if found.failures:
                parts = [f"{found.failed} of {found.seeds} {found.noun}s fail"]
                for failure in found.explained:
                    shown = ", ".join(str(each) for each in failure.seeds[:10])
                    parts += ["", f"{found.noun}s {shown}:", *replays.failure_lines(failure)]
                raise AssertionError("\n".join(parts))
            return test(*given, **({**named, RESULT: found} if wants_result else named))

        # pytest gives fixtures by the signature; the result is not one.
        kept = [each for name, each in signature.parameters.items() if name != RESULT]
        run.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]  # read by pytest
        return run

    return decorate
