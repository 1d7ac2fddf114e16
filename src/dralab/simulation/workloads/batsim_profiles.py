"""One profile of a Batsim workload: its names in version 4, in version 5 and between them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from dralab.scenarios.errors import InputError, content_of, inside
from dralab.scenarios.fields import is_number
from dralab.simulation.json_input import JsonFile, nanoseconds
from dralab.simulation.workloads.jobs import (
    Composed,
    Delay,
    Homogeneous,
    ParallelTask,
    Profile,
    SchedulerMessage,
    Sharing,
    SmpiTrace,
    Staging,
    Storage,
    UsageTrace,
)

SPREAD: Final = frozenset({"DefinedAmountsSpreadUniformly", "defined_amount_spread_uniformly"})
EACH: Final = frozenset(
    {"", "DefinedAmountsUsedForEachValue", "defined_amount_used_for_each_value"}
)
LARGEST_TRACE: Final = 64 << 20
LONGEST: Final = 10**15


class _Fields:
    """The fields of one profile, read with errors that name them."""

    def __init__(self, document: "JsonFile | _Inline", name: str, entry: dict[str, Any]) -> None:
        self.document = document
        self.name = name
        self.entry = entry
        self.type: str = entry.get("type", "")
        self.code = self.whole("ret", 0, least=-(2**31))

    def error(self, key: str, problem: str) -> InputError:
        return self.document.error(["profiles", self.name, key], problem)

    def number(self, key: str, default: float | None = None) -> float:
        value = self.entry.get(key, default)
        if not is_number(value) or not value >= 0:  # type: ignore[operator]  # is_number says it
            raise self.error(key, f"must be a number, not negative, and is {value!r}")
        return value  # type: ignore[return-value]

    def whole(self, key: str, default: int, *, least: int = 0) -> int:
        value = self.entry.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise self.error(key, f"must be a whole number, at least {least}, and is {value!r}")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        value = self.entry.get(key, default)
        if not isinstance(value, str):
            raise self.error(key, "must be a string")
        return value

    def numbers(self, key: str) -> tuple[float, ...]:
        value = self.entry.get(key) or []
        if not isinstance(value, list):
            raise self.error(key, "must be an array of numbers")
        for item in value:
            if not is_number(item) or item < 0:
                raise self.error(key, f"must hold numbers that are not negative, not {item!r}")
        return tuple(float(item) for item in value)

    def spread(self) -> bool:
        strategy = self.entry.get("generation_strategy", "")
        if strategy not in SPREAD | EACH:
            known = ", ".join(sorted(SPREAD | EACH - {""}))
            raise self.error("generation_strategy", f"{strategy!r} is not one of {known}")
        return strategy in SPREAD


def read_profile(document: "JsonFile | _Inline", name: str, entry: Any) -> Profile:
    """Return the profile of that name; InputError if it is not a profile we know."""
    if not isinstance(entry, dict):
        raise document.error(["profiles", name], "must be an object")
    fields = _Fields(document, name, entry)
    reader = READERS.get(fields.type) if isinstance(fields.type, str) else None
    if reader is None:
        raise fields.error("type", f"{fields.type!r} is not one of {', '.join(sorted(READERS))}")
    return reader(fields)


class _Inline:
    """A profile from a message, without a file and lines."""

    def __init__(self, name: str) -> None:
        self.path = Path(name)

    def error(self, steps: Sequence[str | int], problem: str) -> InputError:
        return InputError(self.path, problem, where=".".join(str(step) for step in steps))


def profile_of(workload: str, name: str, entry: Any) -> Profile:
    """Return a profile that was registered during the simulation; it may not refer to files."""
    document = _Inline(workload)
    if isinstance(entry, dict) and {"trace", "filename"} & set(entry):
        raise document.error(["profiles", name], "a registered profile may not name files")
    return read_profile(document, name, entry)


def _delay(fields: _Fields) -> Profile:
    delay = fields.number("delay")
    if delay > LONGEST:
        raise fields.error("delay", f"must be at most {LONGEST} seconds")
    return Delay(duration=nanoseconds(delay), code=fields.code)


def _parallel(fields: _Fields) -> Profile:
    cpu, com = fields.numbers("cpu"), fields.numbers("com")
    width = len(cpu) if cpu else round(len(com) ** 0.5)
    if not cpu and not com:
        raise fields.error("cpu", "cpu or com must be given")
    if com and len(com) != width * width:
        raise fields.error("com", f"must hold {width * width} numbers and holds {len(com)}")
    return ParallelTask(cpu=cpu, com=com, code=fields.code)


def _homogeneous(fields: _Fields) -> Profile:
    sharing: Sharing = "total" if fields.spread() else "each"
    if fields.type == "parallel_homogeneous_total":
        sharing = "total-v4"
    return Homogeneous(
        cpu=fields.number("cpu", 0), com=fields.number("com", 0), sharing=sharing, code=fields.code
    )


def _composed(fields: _Fields) -> Profile:
    parts = fields.entry.get("seq")
    if not isinstance(parts, list) or not parts or not all(isinstance(p, str) for p in parts):
        raise fields.error("seq", "must be an array of names of profiles")
    return Composed(parts=tuple(parts), repeat=fields.whole("repeat", 1, least=1), code=fields.code)


def _storage(fields: _Fields) -> Profile:
    return Storage(
        read=fields.number("bytes_to_read", 0),
        write=fields.number("bytes_to_write", 0),
        storage=fields.text("storage", "pfs"),
        spread=fields.spread() or fields.type == "parallel_homogeneous_pfs",
        code=fields.code,
    )


def _staging(fields: _Fields) -> Profile:
    return Staging(
        size=fields.number("nb_bytes"),
        source=fields.text("from"),
        target=fields.text("to"),
        code=fields.code,
    )


def _replay(fields: _Fields) -> Profile:
    kind = fields.text("trace_type")
    if kind == "SMPI":
        return _smpi(fields)
    if kind == "FractionalComputation":
        return _usage(fields)
    raise fields.error("trace_type", f"{kind!r} is neither SMPI nor FractionalComputation")


def _message(fields: _Fields) -> Profile:
    return SchedulerMessage(code=fields.code)


def _trace_files(fields: _Fields) -> list[tuple[Path, list[tuple[int, list[str]]]]]:
    """Return per rank its file and its lines (number, words)."""
    key = "filename" if "filename" in fields.entry else "trace"
    folder, where = fields.document.path.parent, f"profiles.{fields.name}.{key}"
    main = inside(folder, fields.text(key), file=fields.document.path, where=where)
    ranks = []
    for line in _text(main).splitlines():
        if line.strip():
            path = inside(main.parent, line.strip(), file=main, where="")
            if not path.is_relative_to(folder.resolve()):
                raise InputError(main, f"{line.strip()!r} is outside the folder of the workload")
            lines = [(n, t.split()) for n, t in enumerate(_text(path).splitlines(), 1) if t.strip()]
            ranks.append((path, lines))
    if not ranks:
        raise InputError(main, "names no file of a rank")
    return ranks


def _text(path: Path) -> str:
    return content_of(path, LARGEST_TRACE).decode(errors="replace")


def _amount(path: Path, number: int, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise InputError(path, f"{text!r} must be a number, not negative", line=number)
    return value


def _usage(fields: _Fields) -> Profile:
    ranks = []
    for path, lines in _trace_files(fields):
        rank = []
        for number, words in lines:
            if len(words) != 4 or words[1] != "m_usage":
                raise InputError(path, "must read: <rank> m_usage <0 to 1> <flop>", line=number)
            rank.append((_amount(path, number, words[2]), _amount(path, number, words[3])))
        ranks.append(tuple(rank))
    return UsageTrace(ranks=tuple(ranks), code=fields.code)


def _smpi(fields: _Fields) -> Profile:
    ranks = []
    for path, lines in _trace_files(fields):
        rank: list[tuple[str, int, float]] = []
        for number, words in lines:
            action = words[1].lower() if len(words) > 1 else ""
            numbers = [_amount(path, number, word) for word in words[2:]]
            if action in {"send", "isend", "recv", "irecv"}:
                if not numbers:
                    raise InputError(path, f"{action} does not name another rank", line=number)
                rank.append((action, int(numbers[0]), numbers[-1] if len(numbers) > 1 else 0.0))
            elif action:
                rank.append((action, -1, numbers[0] if numbers else 0.0))
            else:
                raise InputError(path, "must read: <rank> <action> ...", line=number)
        ranks.append(tuple(rank))
    return SmpiTrace(ranks=tuple(ranks), code=fields.code)


# Version 4, version 5, and the names used on the way from one to the other.
READERS: Final[dict[str, Callable[[_Fields], Profile]]] = {
    "delay": _delay,
    "DelayProfile": _delay,
    "parallel": _parallel,
    "msg_par": _parallel,
    "ptask": _parallel,
    "ParallelTaskProfile": _parallel,
    "parallel_homogeneous": _homogeneous,
    "parallel_homogeneous_total": _homogeneous,
    "ptask_homogeneous": _homogeneous,
    "ParallelTaskHomogeneousProfile": _homogeneous,
    "composed": _composed,
    "SequentialCompositionProfile": _composed,
    "parallel_homogeneous_pfs": _storage,
    "ptask_on_storage_homogeneous": _storage,
    "ParallelTaskOnStorageHomogeneousProfile": _storage,
    "data_staging": _staging,
    "ParallelTaskDataStagingBetweenStoragesProfile": _staging,
    "smpi": _smpi,
    "usage_trace": _usage,
    "TraceReplayProfile": _replay,
    "send": _message,
    "recv": _message,
}
