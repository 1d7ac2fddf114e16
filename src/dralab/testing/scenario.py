"""Scenario files of trials: YAML, checked field by field, with lines in the errors.

`scenario_schema` says the same as a JSON schema, for editors.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from dralab import cel
from dralab.api.releases import MIXED, ReleaseError, parse
from dralab.api.yaml_documents import YamlError, documents
from dralab.controllers import registry
from dralab.controllers.certificates import CertificateSigner
from dralab.drivers.catalog import DRIVERS
from dralab.kernel.clock import SECOND
from dralab.runtime.manager import Manager
from dralab.simulation.errors import InputError, content_of, inside
from dralab.simulation.scenario.custom import load_class
from dralab.simulation.scenario.fields import Fields
from dralab.simulation.scenario.fields import load as load_fields
from dralab.testing.authority import TrialAuthority
from dralab.testing.client import ProgramClient
from dralab.testing.faults import DEFAULT_MOST, FAULTS
from dralab.testing.oracles import environment
from dralab.testing.process import Build, ProgramSpec, nothing
from dralab.testing.program_files import ProgramFile, importing_from, is_main
from dralab.testing.trial_scenario import (
    ClusterParts,
    HistoryInvariant,
    ObjectInvariant,
    ScriptStep,
    TrialLimits,
    TrialScenario,
)
from dralab.values.json_types import JsonDict
from dralab.virtualtime import unavailable

SCHEDULER: Final = "scheduler"
NODES: Final = "nodes"
PROGRAM: Final = "program"
PAUSE: Final = 5 * SECOND
VERBS: Final = ("apply", "patch", "scale", "delete", "wait")
LISTS: Final = ("consistent", "cached")
WHEN: Final = ("always", "end")
MOST_REPLICAS: Final = 5
# Upstream's programs, and what of dralab would run beside them unless the scenario says so.
UPSTREAM: Final = (
    ("kube-controller-manager", "controllers", "the list of dralab's that run as well, or false"),
    ("kube-scheduler", "scheduler", "false, or true where both are wanted"),
)


def load(path: Path) -> TrialScenario:
    """Return the scenario of a file. InputError: it cannot be used, with the line."""
    fields = load_fields(path)
    read = _ScenarioReader(path)
    programs = [read.program(each) for each in fields.mappings("programs")]
    if not programs:
        raise fields.error("programs", "must name at least one program")
    names = [program.name for program in programs]
    if len(set(names)) < len(names):
        raise fields.error("programs", "two programs have the same name")
    manifests = [obj for name in fields.texts("manifests") for obj in read.objects(fields, name)]
    faults = fields.mapping("faults")
    allowed = list(faults.texts("allow")) or list(FAULTS)
    for key, given in (("allow", allowed), ("forbid", list(faults.texts("forbid")))):
        for name in given:
            if name not in FAULTS:
                raise faults.error(key, f"{name!r} is not one of {', '.join(FAULTS)}")
    forbidden = set(faults.texts("forbid"))
    most = faults.whole("most", DEFAULT_MOST, least=1)
    faults.done()
    if any(each.file for each in programs) and any(each.command for each in programs):
        what = "run in one process or in processes of their own, all of them: name no command"
        raise fields.error("programs", f"programs on asyncio (python) {what} beside them")
    cluster = read.cluster(fields.mapping("cluster"))
    _check_beside(fields, programs)
    invariants, checks = read.invariants(fields)
    found = TrialScenario(
        name=fields.text("name", path.stem),
        programs=programs,
        manifests=manifests,
        script=[read.step(each) for each in fields.mappings("script")],
        cluster=cluster,
        allowed=[name for name in allowed if name not in forbidden],
        most=most,
        invariants=invariants,
        checks=checks,
        ignore=list(fields.texts("ignore")),
        limits=read.limits(fields.mapping("limits")),
        digest=read.digest(),
    )
    fields.done()
    return found


def _check_beside(fields: Fields, programs: Sequence[ProgramSpec]) -> None:
    """Refuse to run parts of dralab beside upstream's that do the same. InputError."""
    given = fields.mapping("cluster")
    for program in programs:
        names = {Path(word).name for word in program.command}
        for binary, field, instead in UPSTREAM:
            if binary in names and not given.has(field):
                what = f"must be given beside {binary}, which does the same: {instead}"
                raise fields.error(f"cluster.{field}", what)


class _ScenarioReader:
    """Reads the parts of one file, and remembers which files it is made of."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = {path.name: content_of(path)}

    def digest(self) -> str:
        """Return what tells two scenarios apart: all files that were read."""
        found = hashlib.sha256()
        for name in sorted(self.files):
            found.update(f"{name}\0{len(self.files[name])}\0".encode())
            found.update(self.files[name])
        return found.hexdigest()[:16]

    def program(self, given: Fields) -> ProgramSpec:
        """Return a program: ours by name, or a class of the user's."""
        drivers = self._drivers(given)
        readers: Mapping[str, Callable[[Fields], Any]] = {
            "python": partial(self._python, given),
            "controller": lambda f: f.choice("controller", registry.CONTROLLERS),
            "scheduler": lambda f: SCHEDULER if f.flag("scheduler", default=True) else "",
            "command": lambda f: list(f.texts("command")),
            "nodes": lambda f: partial(nodes, number=f.whole("nodes", least=1), drivers=drivers),
        }
        found = given.one_of(readers)
        build: Build
        command: list[str] = []
        file: ProgramFile | None = None
        if isinstance(found, list):
            command, name, build = found, PROGRAM, nothing
            if not command:
                raise given.error("command", "must have at least one word")
            if (why := unavailable()) is not None:
                raise given.error("command", f"needs the virtual clock: {why}")
        elif isinstance(found, partial) and found.func is nodes:
            name, build = NODES, found
        elif callable(found):
            name, build = Path(given.text("python").partition(":")[0]).stem, found
            if is_main(found):
                stem, _, main = given.text("python").rpartition(":")
                file, build = ProgramFile(self.path.parent / stem, main), nothing
        elif found == SCHEDULER:
            name, build = SCHEDULER, scheduler
        elif found:
            name, build = found, partial(controller, name=found)
        else:
            raise given.error("scheduler", "must be true")
        own = given.text("name", name)
        if not (given.has("python") or command) and own != name:
            raise given.error("name", f"must be {name!r}: parts of dralab have their own names")
        replicas = given.whole("replicas", 1, least=1)
        if replicas > MOST_REPLICAS:
            raise given.error("replicas", f"must be at most {MOST_REPLICAS}")
        cached = given.choice("lists", dict.fromkeys(LISTS), "consistent") == "cached"
        given.done()
        return ProgramSpec(
            name=own,
            build=build,
            replicas=replicas,
            # What a process asks for is seen in its requests.
            cached_lists=cached or bool(command or file),
            command=command,
            folder=self.path.parent,
            file=file,
            own=not (given.has("python") or command),
        )

    def _python(self, given: Fields, _: Fields) -> Build:
        named = given.text("python")
        file, colon, name = named.rpartition(":")
        if not colon or not file.endswith(".py") or not name.isidentifier():
            raise given.error("python", f"{named!r} is not of the form file.py:Name")
        with importing_from(self.path.parent):
            made = load_class(named, self.path, "programs")
        self._keep(file)
        return made

    def _keep(self, name: str) -> None:
        self.files[name] = content_of(self.path.parent / name)

    def objects(self, given: Fields, name: str) -> list[JsonDict]:
        """Return the objects of a file beside the scenario."""
        path = inside(self.path.parent, name, file=self.path, where=given.where)
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

    def cluster(self, given: Fields) -> ClusterParts:
        """Return what runs beside the programs."""
        controllers: list[str] | None = None
        if isinstance(given.raw("controllers"), bool):
            controllers = None if given.flag("controllers", default=True) else []
        elif given.has("controllers"):
            controllers = list(given.texts("controllers"))
            for name in controllers:
                if name not in registry.CONTROLLERS:
                    known = ", ".join(registry.CONTROLLERS)
                    raise given.error("controllers", f"{name!r} is not one of {known}")
        drivers = self._drivers(given)
        found = ClusterParts(
            controllers=controllers,
            scheduler=given.flag("scheduler", default=True),
            nodes=given.whole("nodes", 0),
            drivers=drivers,
            version=self._release(given) if given.has("version") else MIXED,
        )
        given.done()
        return found

    @staticmethod
    def _release(given: Fields) -> str:
        try:
            return parse(given.text("version"))
        except ReleaseError as error:
            raise given.error("version", str(error)) from error

    @staticmethod
    def _drivers(given: Fields) -> list[str]:
        drivers = list(given.texts("drivers"))
        for name in drivers:
            if name not in DRIVERS:
                raise given.error("drivers", f"{name!r} is not one of {', '.join(DRIVERS)}")
        return drivers

    def step(self, given: Fields) -> ScriptStep:
        """Return a step of the script: `after` is the time since the step before."""
        verbs = [verb for verb in VERBS if given.has(verb)]
        if len(verbs) != 1:
            raise given.place.error(given.where, f"must have exactly one of {', '.join(VERBS)}")
        verb = verbs[0]
        if verb == "wait":
            duration = given.duration("wait")
            given.done()
            return ScriptStep(verb="wait", after=duration)
        after = given.duration("after", PAUSE)
        if verb == "apply":
            named = given.raw("apply")
            files = list(given.texts("apply")) if isinstance(named, list) else [given.text("apply")]
            objects = [obj for name in files for obj in self.objects(given, name)]
            given.done()
            return ScriptStep(verb=verb, after=after, objects=objects)
        target = self._target(given.mapping(verb))
        patch: JsonDict = {}
        subresource = ""
        if verb == "scale":
            patch = {"replicas": given.whole("replicas")}
        elif verb == "patch":
            patch = given.mapping("with").value
            subresource = given.text("subresource", "")
        given.done()
        return ScriptStep(
            verb=verb, after=after, target=target, patch=patch, subresource=subresource
        )

    def _target(self, given: Fields) -> JsonDict:
        found: JsonDict = {
            "apiVersion": given.text("apiVersion"),
            "kind": given.text("kind"),
            "namespace": given.text("namespace", ""),
        }
        if given.has("name") == given.has("selector"):
            raise given.place.error(given.where, "must have either name or selector")
        if given.has("name"):
            found["name"] = given.text("name")
        else:
            found["selector"] = given.text("selector")
            found["most"] = given.whole("most", 0)
        given.done()
        return found

    def invariants(self, fields: Fields) -> tuple[list[ObjectInvariant], list[HistoryInvariant]]:
        """Return what the user wants to hold."""
        expressions: list[ObjectInvariant] = []
        checks: list[HistoryInvariant] = []
        for given in fields.mappings("invariants"):
            if given.has("python") == given.has("expression"):
                raise given.place.error(given.where, "must have either expression or python")
            if given.has("python"):
                check = self._python(given, given)
                name = given.text("name", given.text("python"))
                checks.append(HistoryInvariant(name=name, check=check))  # type: ignore[arg-type]  # the user's
                given.done()
                continue
            text = given.text("expression")
            try:
                cel.compile_expression(text, environment())
            except cel.CompileError as error:
                # What follows are the expression and a mark below it.
                told = str(error).partition("\n")[0]
                raise given.error("expression", told) from None
            invariant = ObjectInvariant(
                name=given.text("name", text),
                api_version=given.text("apiVersion", "v1"),
                kind=given.text("kind"),
                expression=text,
                always=given.choice("when", dict.fromkeys(WHEN), "always") == "always",
            )
            given.done()
            expressions.append(invariant)
        return expressions, checks

    def limits(self, given: Fields) -> TrialLimits:
        """Return the bounds of a trial."""
        usual = TrialLimits()
        found = TrialLimits(
            quiet=given.duration("quiet", usual.quiet),
            settle=given.duration("settle", usual.settle),
            steps=given.whole("steps", usual.steps, least=1),
            wall=given.duration("wall", int(usual.wall * SECOND)) / SECOND,
            memory=given.quantity("memory", str(usual.memory)),
        )
        given.done()
        return found


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
