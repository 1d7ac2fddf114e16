"""Scenario files of trials: YAML, checked field by field, with lines in the errors."""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from dralab import cel
from dralab.api.yaml_documents import YamlError, documents
from dralab.controllers import registry
from dralab.controllers.certificates import CertificateSigner
from dralab.drivers.catalog import DRIVERS
from dralab.kernel.clock import SECOND
from dralab.runtime.manager import Manager
from dralab.scenarios.code import load_class
from dralab.scenarios.errors import InputError, content_of, inside
from dralab.scenarios.fields import Fields
from dralab.scenarios.fields import load as load_fields
from dralab.scenarios.tables import (
    DURATION,
    QUANTITY,
    Given,
    InputField,
    Table,
    choice,
    duration,
    either,
    field,
    flag,
    label,
    not_one_of,
    quantity,
    release,
    row,
    rows,
    texts,
    whole,
)
from dralab.testing.authority import TrialAuthority
from dralab.testing.client import ProgramClient
from dralab.testing.faults import DEFAULT_MOST, FAULTS
from dralab.testing.process import Build, ProgramSpec, nothing
from dralab.testing.program_globals import ProgramFile, importing_from, is_main
from dralab.testing.trial_scenario import (
    ClusterParts,
    HistoryInvariant,
    ObjectInvariant,
    ScriptStep,
    TrialLimits,
    TrialScenario,
)
from dralab.values import json_schema
from dralab.values.json_schema import FILE, PYTHON, TEXT, JsonSchema, document
from dralab.values.json_types import JsonDict
from dralab.virtualtime import unavailable

PROGRAM: Final = "program"
PAUSE: Final = 5 * SECOND
LISTS: Final = ("consistent", "cached")
WHEN: Final = ("always", "end")
MOST_REPLICAS: Final = 5
# Upstream's programs, and what of dralab would run beside them unless the scenario says so.
UPSTREAM: Final = (
    ("kube-controller-manager", "controllers", "the list of dralab's that run as well, or false"),
    ("kube-scheduler", "scheduler", "false, or true where both are wanted"),
)


def _file_and_name(named: str) -> str:
    file, colon, name = named.rpartition(":")
    known = colon and file.endswith(".py") and name.isidentifier()
    return "" if known else f"{named!r} is not of the form file.py:Name"


def _expression(text: str) -> str:
    try:
        cel.compile_expression(text, cel.of_objects())
    except cel.CompileError as error:
        # What follows are the expression and a mark below it.
        return str(error).partition("\n")[0]
    return ""


def _names(known: Collection[str], about: str = "", **how: Any) -> InputField:
    return texts(about, item=json_schema.choice(known), check=not_one_of(known), **how)


def _faults(**how: Any) -> InputField:
    return texts(item={"$ref": "#/$defs/fault"}, check=not_one_of(FAULTS), **how)


USUAL: Final = TrialLimits()
LIMITS: Final = Table(
    {
        "quiet": duration("For so long nothing changes at the end.", default=USUAL.quiet),
        "settle": duration("Time to come to rest after the faults.", default=USUAL.settle),
        "steps": whole(least=1, default=USUAL.steps),
        "wall": duration("Real time of one trial.", default=int(USUAL.wall * SECOND)),
        "memory": quantity("A quantity such as 2Gi.", schema=QUANTITY, default=USUAL.memory),
    }
)
PYTHON_RULE: Final = label(
    "file.py:Class, called with a dralab.runtime.manager.Manager, or file.py:main, a coroutine "
    "function.",
    schema=PYTHON,
).checked(_file_and_name)
PROGRAM_FORMS: Final = {
    "python": PYTHON_RULE,
    "controller": choice(registry.CONTROLLERS, "One of dralab's controllers."),
    "scheduler": field({"const": True}, Fields.flag, "dralab's scheduler.").checked(
        lambda wanted: "" if wanted else "must be true"
    ),
    "nodes": whole("dralab's simulated nodes.", 1),
    "command": field(
        json_schema.listing(TEXT, 1),
        lambda given, key: list(given.texts(key)),
        "A program under the virtual clock; {kubeconfig} and {server} are replaced.",
    ).checked(lambda words: "" if words else "must have at least one word"),
}
PROGRAMS: Final = Table(
    PROGRAM_FORMS
    | {
        "name": label(),
        "drivers": _names(DRIVERS, "Drivers on these nodes."),
        "replicas": whole("", 1, MOST_REPLICAS, default=1),
        "lists": choice(
            LISTS,
            "cached: first lists may be old, as with resourceVersion=0.",
            default="consistent",
        ),
    },
    one_of=list(PROGRAM_FORMS),
)
TARGET: Final = Table(
    {
        "apiVersion": label(required=True),
        "kind": label(required=True),
        "namespace": label(default=""),
        "name": label(),
        "selector": label(),
        "most": whole("So many of the selected; default: all.", default=0, needs="selector"),
    },
    one_of=("name", "selector"),
    told="must have either name or selector",
)
AIM: Final = replace(row(TARGET, always=False), schema={"$ref": "#/$defs/target"})
STEP: Final = Table(
    {
        "after": duration(
            "Since the step before; default: 5s.",
            default=PAUSE,
            needs=("apply", "patch", "scale", "delete"),
        ),
        "apply": either(label(), texts()),
        "patch": AIM,
        "with": field(
            {"type": "object"},
            lambda given, key: given.mapping(key).value,
            "A merge patch.",
            always=True,
            needs="patch",
        ),
        "subresource": label("What is patched: status, approval.", default="", needs="patch"),
        "scale": AIM,
        "replicas": whole(always=True, needs="scale"),
        "delete": AIM,
        "wait": duration(),
    },
    one_of=("apply", "patch", ("scale", "replicas"), "delete", "wait"),
)
INVARIANT: Final = Table(
    {
        "name": label(),
        "apiVersion": label("Default: v1.", default="v1", needs="expression"),
        "kind": label(always=True, needs="expression"),
        "expression": label("CEL over object and oldObject.").checked(_expression),
        "when": choice(WHEN, default="always", needs="expression"),
        "python": label(
            "file.py:function of the objects at the end and the history.", schema=PYTHON
        ).checked(_file_and_name),
    },
    one_of=(("expression", "kind"), "python"),
    told="must have either expression or python",
)
CLUSTER: Final = Table(
    {
        "controllers": either(
            flag(),
            _names(registry.CONTROLLERS),
            about="Names of dralab's controllers; default: all.",
            default=True,
        ),
        "scheduler": flag(default=True),
        "version": release(),
        "nodes": whole(default=0),
        "drivers": _names(DRIVERS),
    }
)
SCENARIO: Final = Table(
    {
        "name": label("How reports name it; default: the name of the file."),
        "programs": rows(PROGRAMS, "The programs under test.", 1, required=True),
        "manifests": texts("Objects that exist before the programs start.", item=FILE),
        "script": rows(STEP, "What a user does, step by step."),
        "cluster": row(CLUSTER, "What runs beside the programs, without faults."),
        "faults": row(
            Table(
                {
                    "allow": _faults(),
                    "forbid": _faults(),
                    "most": whole(
                        f"Faults of one trial; default: {DEFAULT_MOST}.", 1, default=DEFAULT_MOST
                    ),
                }
            )
        ),
        "invariants": rows(INVARIANT, "What must hold."),
        "ignore": texts("Not compared: configmaps, or a path: example.com/sites:status.port."),
        "limits": row(LIMITS),
    }
)


def schema() -> JsonSchema:
    """Return the JSON schema of scenario files."""
    return document(
        "Scenario of dralab dst",
        "Programs, what a user does, and what must hold under faults: `dralab dst run FILE`.",
        SCENARIO.schema(),
        duration=json_schema.about("Seconds, or 90s, 1h30m, 7d.", DURATION),
        fault=json_schema.choice(FAULTS),
        target=TARGET.schema(),
    )


def load(path: Path) -> TrialScenario:
    """Return the scenario of a file. InputError: it cannot be used, with the line."""
    given = SCENARIO.read(load_fields(path))
    read = _ScenarioReader(path)
    programs = [read.program(each) for each in given.programs]
    if not programs:
        raise given.error("programs", "must name at least one program")
    if len({program.name for program in programs}) < len(programs):
        raise given.error("programs", "two programs have the same name")
    if any(each.file for each in programs) and any(each.command for each in programs):
        what = "run in one process or in processes of their own, all of them: name no command"
        raise given.error("programs", f"programs on asyncio (python) {what} beside them")
    _check_beside(given, programs)
    faults, parts, limits = given.faults, given.cluster.values, given.limits.values
    invariants, checks = read.invariants(given.invariants)
    if isinstance(parts["controllers"], bool):
        parts["controllers"] = None if parts["controllers"] else []
    return TrialScenario(
        name=given.name or path.stem,
        programs=programs,
        manifests=[obj for name in given.manifests for obj in read.objects(given, name)],
        script=[read.step(each) for each in given.script],
        cluster=ClusterParts(**parts),
        allowed=[name for name in faults.allow or FAULTS if name not in faults.forbid],
        most=faults.most,
        invariants=invariants,
        checks=checks,
        ignore=given.ignore,
        limits=TrialLimits(**limits | {"wall": limits["wall"] / SECOND}),
        digest=read.digest(),
    )


def _check_beside(given: Given, programs: Sequence[ProgramSpec]) -> None:
    """Refuse to run parts of dralab beside upstream's that do the same. InputError."""
    for program in programs:
        names = {Path(word).name for word in program.command}
        for binary, part, instead in UPSTREAM:
            if binary in names and not given.cluster.given.has(part):
                what = f"must be given beside {binary}, which does the same: {instead}"
                raise given.error(f"cluster.{part}", what)


class _ScenarioReader:
    """Reads the parts of one file, and remembers which files it is made of."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = {path.name: content_of(path)}

    def digest(self) -> str:
        """Return a digest of all files that were read."""
        found = hashlib.sha256()
        for name in sorted(self.files):
            found.update(f"{name}\0{len(self.files[name])}\0".encode())
            found.update(self.files[name])
        return found.hexdigest()[:16]

    def program(self, given: Given) -> ProgramSpec:
        """Return a program: ours by name, or a class of the user's."""
        name, file = given.form, None
        build: Build = nothing
        match given.form:
            case "python":
                build = self._python(given.python)
                stem, _, main = given.python.rpartition(":")
                name = Path(given.python.partition(":")[0]).stem
                if is_main(build):
                    file, build = ProgramFile(self.path.parent / stem, main), nothing
            case "command":
                name = PROGRAM
                if (why := unavailable()) is not None:
                    raise given.error("command", f"needs the virtual clock: {why}")
            case "nodes":
                build = partial(nodes, number=given.nodes, drivers=given.drivers)
            case "scheduler":
                build = scheduler
            case _:
                name, build = given.controller, partial(controller, name=given.controller)
        own = given.form not in {"python", "command"}
        if own and given.name not in {None, name}:
            raise given.error("name", f"must be {name!r}: parts of dralab have their own names")
        command = given.command or []
        return ProgramSpec(
            name=given.name or name,
            build=build,
            replicas=given.replicas,
            # What a process asks for is seen in its requests.
            cached_lists=given.lists == "cached" or bool(command or file),
            command=command,
            folder=self.path.parent,
            file=file,
            own=own,
        )

    def _python(self, named: str) -> Build:
        with importing_from(self.path.parent):
            made = load_class(named, self.path, "programs")
        self._keep(named.rpartition(":")[0])
        return made

    def _keep(self, name: str) -> None:
        self.files[name] = content_of(self.path.parent / name)

    def objects(self, given: Given, name: str) -> list[JsonDict]:
        """Return the objects of a file beside the scenario."""
        path = inside(self.path.parent, name, file=self.path, where=given.given.where)
        self._keep(name)
        try:
            found = [d for d in documents(self.files[name]) if d.value is not None]
        except YamlError as error:
            raise InputError(path, error.message, line=error.line or None) from None
        objects: list[JsonDict] = []
        for each in found:
            metadata = each.value.get("metadata") if isinstance(each.value, dict) else None
            if not isinstance(metadata, dict) or not metadata.get("name"):
                raise InputError(path, "is not an object with a name", line=each.line)
            if not each.value.get("apiVersion") or not each.value.get("kind"):
                raise InputError(path, "is an object without apiVersion or kind", line=each.line)
            objects.append(each.value)
        return objects

    def step(self, given: Given) -> ScriptStep:
        """Return a step of the script: `after` is the time since the step before."""
        verb = given.form
        if verb == "wait":
            return ScriptStep(verb=verb, after=given.wait)
        if verb == "apply":
            files = [given.apply] if isinstance(given.apply, str) else given.apply
            objects = [obj for name in files for obj in self.objects(given, name)]
            return ScriptStep(verb=verb, after=given.after, objects=objects)
        values = given[verb].values
        aim = {name: values[name] for name in ("apiVersion", "kind", "namespace", given[verb].form)}
        return ScriptStep(
            verb=verb,
            after=given.after,
            target=aim | ({"most": values["most"]} if "selector" in aim else {}),
            patch={"replicas": given.replicas} if verb == "scale" else given["with"] or {},
            subresource=given.subresource,
        )

    def invariants(
        self, listed: Sequence[Given]
    ) -> tuple[list[ObjectInvariant], list[HistoryInvariant]]:
        """Return the user's invariants."""
        checks = [
            HistoryInvariant(name=each.name or each.python, check=self._python(each.python))  # type: ignore[arg-type]  # the user's
            for each in listed
            if each.form == "python"
        ]
        expressions = [
            ObjectInvariant(
                name=each.name or each.expression,
                api_version=each.apiVersion,
                kind=each.kind,
                expression=each.expression,
                always=each.when == "always",
            )
            for each in listed
            if each.form == "expression"
        ]
        return expressions, checks


def scheduler(manager: Manager) -> object:
    """Build dralab's scheduler."""
    from dralab.allocation.selectors import CelSelectorCompiler
    from dralab.scheduler.scheduler import Scheduler, briefly

    return Scheduler(manager, CelSelectorCompiler(), explain=briefly)


def controller(manager: Manager, *, name: str) -> object:
    """Build one of dralab's controllers."""
    if name == registry.SIGNING:
        return CertificateSigner(manager, TrialAuthority())
    client = manager.client
    kinds = client.kinds if isinstance(client, ProgramClient) else None
    return registry.assemble(manager, without=set(registry.CONTROLLERS) - {name}, kinds=kinds)


def nodes(manager: Manager, *, number: int, drivers: Sequence[str]) -> object:
    """Build simulated nodes with their drivers: a restart is one of whole machines."""
    from dralab.components.nodes import NodeOptions, assemble

    return assemble(manager, NodeOptions(nodes=number, drivers=drivers))
