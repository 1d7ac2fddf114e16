"""`external:` of a scenario: the schedulers that run, what runs beside them, how time is kept."""

import shlex
from typing import Any, Final

from dralab.kernel.clock import from_rfc3339
from dralab.scenarios.fields import Fields
from dralab.scenarios.tables import InputField, Table, choice, flag, label, number, whole
from dralab.scenarios.tables import field as field_rule
from dralab.values.json_schema import TEXT, any_of, listing
from dralab.values.json_schema import choice as one_of

VIRTUAL, REAL = "virtual", "real"
STOCK: Final = "external"  # a program among the schedulers has the controllers
WORDS: Final = any_of(TEXT, listing(TEXT))


def _words(given: Fields, key: str) -> tuple[str, ...]:
    value = given.raw(key)
    if isinstance(value, str):
        return tuple(shlex.split(value))
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise given.error(key, "must be a string or a list of strings")
    return tuple(value)


def _commands(given: Fields, key: str) -> dict[str, tuple[str, ...]]:
    found = given.raw(key)
    if not isinstance(found, dict) or not found:
        raise given.error(key, "must map names to commands")
    inner = given.mapping(key)
    return {str(name): _words(inner, name) for name in found}


def _instant(given: Fields, key: str) -> int:
    text = given.text(key)
    try:
        return from_rfc3339(text)
    except ValueError:
        problem = f"{text!r} is not a time such as 2026-01-01T00:00:00Z (in quotes)"
        raise given.error(key, problem) from None


def _controllers(given: Fields, key: str) -> tuple[str, ...]:
    from dralab.controllers.registry import CONTROLLERS

    value = given.raw(key)
    if value in (STOCK, "all"):
        return (STOCK,) if value == STOCK else tuple(CONTROLLERS)
    known = ", ".join(CONTROLLERS)
    if not isinstance(value, list):
        raise given.error(key, f"must be {STOCK}, all, or a list of names: {known}")
    for name in given.texts(key):
        if name not in CONTROLLERS:
            raise given.error(key, f"{name!r} is unknown; known: {known}")
    return tuple(value)


IN_BOTH: Final[dict[str, InputField]] = {
    "command": field_rule(
        WORDS, _words,
        "The scheduler to start; {kubeconfig}, {server}, {config} and {port} are replaced. "
        "Default: none, start it yourself.",
    ),
    "schedulers": field_rule(
        {"type": "object", "minProperties": 1, "additionalProperties": WORDS}, _commands,
        "Several schedulers: commands by the name that pods give in `scheduler`.",
    ),
    "scheduler_name": label(
        "`spec.schedulerName` of pods without one. Default: default-scheduler.",
        default="default-scheduler",
    ),
    "port": whole("To serve on. Default: any.", most=65_535, default=0),
    "tls": flag("Serve over HTTPS, with a token.", default=False),
    "clock": choice((VIRTUAL, REAL), "Default: virtual, where there is one.", default=VIRTUAL),
    "start": field_rule(
        TEXT, _instant,
        "What the clock shows when the run begins, such as 2026-01-01T00:00:00Z. Default: now.",
    ),
    "controllers": field_rule(
        any_of(one_of([STOCK, "all"]), listing(TEXT)), _controllers,
        "Controllers of dralab that run, too; `external` if a program has them. Default: none.",
        default=(),
    ),
    "heartbeats": number(
        "Seconds between the lease renewals of a node; 0: none. Default: 10 if something watches "
        "nodes, else 0."
    ),
    "claims": flag("GPUs are devices, and pods have claims for them.", default=False),
    "overcommit": flag(
        "Accept binds to nodes without room; otherwise the pod fails with OutOfcpu.", default=False
    ),
    "restarts": whole("How often a scheduler that exits is started again.", default=0),
}  # fmt: skip
UNDER_THE_CLOCK: Final[dict[str, InputField]] = {
    "warm_up": number(
        "Seconds of the clock that programs have to start in before the run. Default: 10.",
        default=10.0,
    ),
    # kube-scheduler tries again after 5 minutes what it could not place.
    "rest": number(
        "A run without further events ends after so many seconds of the clock without a write. "
        "Default: 600.",
        default=600.0,
    ),
    "timer_slack": number(
        "Timers of programs may fire so many seconds late, several at once.", default=0.0
    ),
    "skip_idle_timers": flag(
        "While no pod waits, pass timers of programs in steps of 30 s. If a program then asks the "
        "server anything but events, the run is repeated with all timers.",
        default=False,
    ),
    "instant_timeout": number(
        "Real seconds after which a program that has not paused ends the run. Default: 300.",
        default=300.0,
    ),
}
IN_REAL_TIME: Final[dict[str, InputField]] = {
    "quiet_period": number(
        "Seconds of silence that count as an answer. Default: 0.05.", default=0.05
    ),
    "answer_timeout": number(
        "Seconds to wait for pods without an answer; fewer once the scheduler's speed is known. "
        "Default: 10.",
        default=10.0,
    ),
    "bind_grace": number(
        "Seconds to wait for a pod that has room but is not bound. Default: 2.", default=2.0
    ),
    "polls": flag(
        "The scheduler lists instead of watching; found out if it watches no pods.", default=False
    ),
    "wait_for_rejections": flag(
        "Also wait for an answer about pods that fit nowhere.", default=False
    ),
    "strict": flag("End the run at a late bind.", default=False),
    "start_quiet_period": number(
        "At the start: seconds of silence that are waited for. Default: 0.3.", default=0.3
    ),
    "start_timeout": number("At the start: the longest wait. Default: 60.", default=60.0),
}
EXTERNAL: Final = Table(IN_BOTH | UNDER_THE_CLOCK | IN_REAL_TIME)


def without_effect(given: dict[str, Any], *, virtual: bool) -> list[str]:
    """Return the fields that say something and have no effect on how time is kept."""
    other = IN_REAL_TIME if virtual else UNDER_THE_CLOCK
    return sorted(name for name, rule in other.items() if given[name] != rule.default)
