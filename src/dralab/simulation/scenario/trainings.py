"""`workload.trainings`: jobs with a speed on each type of GPU, for rounds of time slices."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from dralab.kernel.clock import SECOND
from dralab.scenarios.fields import Fields, numbered
from dralab.scenarios.tables import Given, Table, count, duration, field, label, whole
from dralab.simulation.lifecycle.model import Pod, TrainingWork
from dralab.simulation.scenario.generated import MOST_TASKS, bounded
from dralab.simulation.workloads.openb import WHOLE_GPU, PodRequest
from dralab.values.json_schema import any_of

NUMBER: Final = re.compile("[1-9][0-9]*")
# By type of GPU and number of GPUs: steps per second.
Speeds = Mapping[str, Mapping[int, float]]
ABOVE_0: Final = {"type": "number", "exclusiveMinimum": 0}
BY_GPUS: Final = {
    "type": "object",
    "minProperties": 1,
    "propertyNames": {"pattern": "^[1-9][0-9]*$"},
    "additionalProperties": ABOVE_0,
}


def _speeds(given: Fields, key: str) -> Speeds:
    models = given.mapping(key)
    if not models.value:
        raise given.error(key, "must have a model of GPU with its speed")
    return {model: _by_gpus(models, model) for model in models.value}


def _by_gpus(models: Fields, model: str) -> Mapping[int, float]:
    if not isinstance(models.raw(model), Mapping):
        return {0: _speed(models, model)}
    numbers = models.mapping(model)
    for text in numbers.value:
        if not NUMBER.fullmatch(str(text)):
            raise numbers.error(str(text), "is not a number of GPUs: write 1, 2, 4, …")
    if not numbers.value:
        raise models.error(model, "must have a number of GPUs with its speed")
    return {int(text): _speed(numbers, text) for text in sorted(numbers.value, key=int)}


def _speed(given: Fields, key: str) -> float:
    speed = given.number(key)
    if not speed:
        raise given.error(key, _above_0(speed))
    return speed


def _above_0(value: float) -> str:
    return "" if value else "must be above 0"


TRAINING: Final = Table(
    {
        "name": label(required=True),
        "count": count(MOST_TASKS),
        "every": duration("Between two arrivals.", default=0),
        "at": duration("When the first arrives.", default=0),
        "gpus": whole("All of one model, on one node or several; default: 1.", 1, default=1),
        "speeds": field(
            {
                "type": "object",
                "minProperties": 1,
                "additionalProperties": any_of(ABOVE_0, BY_GPUS),
            },
            _speeds,
            "Steps per second on each model of GPU it can run on, with `gpus` GPUs, or with each "
            "of some numbers of them; then it may be given any from the least to the most. "
            "Default: 1 on every model.",
        ),
        "kind": label(
            "Of `profiles`: what is trained, which says how fast it is and what it makes of others "
            "on its GPUs.",
            default="",
        ),
        "steps": field(ABOVE_0, Fields.number, "How much there is to do.").checked(_above_0),
        "duration": duration("The same, as the time that it takes at a speed of 1.").checked(
            _above_0
        ),
        "epochs": whole("The same, where `profiles` is a folder of measurements.", 1),
        "batch": whole("Of an epoch; default: the best, chosen again and again.", 1),
        "weight": field(
            ABOVE_0,
            Fields.number,
            "Its part beside that of others, by max-min; default: 1.",
            default=1.0,
        ).checked(_above_0),
        "startup": duration("Lost whenever it gets other GPUs.", default=0),
        "checkpoint": duration("Time between checkpoints, in place of that of `lifecycle`."),
        "user": label(default=""),
        "queue": label(default=""),
    },
    one_of=("steps", "duration", "epochs"),
    rules={
        "not": {"required": ["kind", "speeds"]},
        "dependentRequired": {"epochs": ["kind"], "batch": ["epochs"]},
    },
)


def pods(entries: Sequence[Given], *, profiles: bool) -> Iterator[Pod]:
    """Yield the trainings of a scenario, as pods. InputError."""
    seen: set[str] = set()
    for entry in bounded(entries, "trainings"):
        work = _work(entry, profiles=profiles)
        request = PodRequest(0, WHOLE_GPU, entry.gpus, "|".join(work.speeds))
        for index, full in enumerate(numbered(entry.name, entry.count)):
            if full in seen:
                raise entry.error("name", f"there are two trainings {full!r}")
            seen.add(full)
            yield Pod(
                name=full,
                request=request,
                arrives=entry.at + index * entry.every,
                user=entry.user,
                queue=entry.queue,
                startup=entry.startup,
                checkpoint=entry.checkpoint,
                training=work,
            )


def _work(entry: Given, *, profiles: bool) -> TrainingWork:
    if entry.kind and not profiles:
        raise entry.error("kind", "names a row of `profiles`: give that file to the workload")
    if entry.kind and entry.speeds:
        raise entry.error("speeds", "are those of `kind` in `profiles`: give one of the two")
    if entry.epochs and not entry.kind:
        raise entry.error("kind", "must be given with `epochs`: what is trained")
    if entry.batch and not entry.epochs:
        raise entry.error("batch", "is of `epochs`, which are not given")
    speeds: dict[str, Any] = {}
    for model, by_gpus in (entry.speeds or {}).items():
        speeds[model] = {number or entry.gpus: speed for number, speed in by_gpus.items()}
        least, most = min(speeds[model]), max(speeds[model])
        if not least <= entry.gpus <= most:
            problem = f"of {model} are for {least} to {most} GPUs, and it asks for {entry.gpus}"
            raise entry.error("speeds", problem)
    steps = entry.duration / SECOND if entry.duration else entry.steps
    return TrainingWork(
        steps=steps,
        speeds=speeds,
        kind=entry.kind,
        epochs=entry.epochs,
        batch=entry.batch,
        weight=entry.weight,
    )
