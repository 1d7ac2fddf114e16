"""The client of a program under test: the server's verbs, with injected faults.

A fault is what a network, a server or another client can do. A conflict is made by a real write of
another client, so that only requests that state a resourceVersion are refused for it. A lost
answer comes after a real commit. Nothing is refused that a real server would take.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, TypeVar

from dralab.api.kinds import Kinds
from dralab.api.status import ApiError
from dralab.apiserver.storage import Key
from dralab.apiserver.verbs import reading
from dralab.apiserver.verbs.state.options import ListOptions
from dralab.kernel.clock import SECOND
from dralab.objects.metadata import annotations_of, metadata_of
from dralab.runtime.client import ObjectList, PatchType, Resource
from dralab.testing import history as kinds
from dralab.testing.faults import TOUCHED, PlannedFault
from dralab.testing.history import ProgramRequest, named
from dralab.testing.refusals import lasting_refusal, lasts, no_answer, refused_with
from dralab.testing.surroundings import ProgramKilled, RequestingProcess, TrialSurroundings
from dralab.testing.watch import ProgramWatch
from dralab.values.json_types import JsonDict

T = TypeVar("T")
# How long a client waits for an answer that is lost.
PATIENCE: Final = 5 * SECOND


class ProgramClient:
    """The `Client` of one incarnation of a program.

    `from_cache`: the first list of each kind may be old, as with `resourceVersion=0`.
    """

    def __init__(
        self,
        around: TrialSurroundings,
        process: RequestingProcess,
        incarnation: int,
        *,
        from_cache: bool = False,
    ) -> None:
        self._from_cache = from_cache
        self._around = around
        self._process = process
        self._incarnation = incarnation
        self._inner = around.client_for(process.program)
        self._watches: list[ProgramWatch] = []
        self._listed: set[Resource] = set()
        self._lag: dict[Resource, int] = {}

    @property
    def kinds(self) -> Kinds:
        """The kinds of the server, as a program saw them at its start."""
        return self._around.server.resources.kinds

    def cut(self) -> None:
        """End its watches like a lost connection; the program lives on."""
        watches, self._watches = self._watches, []
        for watch in watches:
            watch.cut(no_answer())

    def close(self) -> None:
        """End its watches: the process is gone."""
        for watch in self._watches:
            watch.close()

    # --- the verbs --------------------------------------------------------------------------------

    def get(self, resource: Resource, name: str, namespace: str = "") -> JsonDict:
        """Return one object."""
        request = ProgramRequest("get", resource, namespace, name)
        return self._ask(request, lambda: self._inner.get(resource, name, namespace))

    def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
    ) -> ObjectList:
        """Return the objects of a namespace, or of all where it is empty."""
        request = ProgramRequest("list", resource, namespace)
        selectors = {"label_selector": label_selector, "field_selector": field_selector}

        def listed() -> ObjectList:
            first, old = resource not in self._listed, None
            self._listed.add(resource)
            if first and self._from_cache:
                old = self._around.plan.at_first_list(self._process.program, named(resource))
            if old is not None and (found := self._old(request, old, selectors)) is not None:
                return found
            return self._inner.list(resource, namespace, **selectors)

        return self._ask(request, listed)

    def watch(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        revision: str,
        label_selector: str = "",
        field_selector: str = "",
    ) -> ProgramWatch:
        """Return the changes after `revision`."""
        request = ProgramRequest("watch", resource, namespace)
        selectors = {"label_selector": label_selector, "field_selector": field_selector}

        def opened() -> ProgramWatch:
            inner = self._inner.watch(resource, namespace, revision=revision, **selectors)
            return ProgramWatch(
                self._around, self._process, inner, named(resource), self._lag.pop(resource, 0)
            )

        found = self._ask(request, opened)
        self._watches.append(found)
        return found

    def create(self, resource: Resource, body: JsonDict, namespace: str = "") -> JsonDict:
        """Store a new object."""
        metadata = metadata_of(body)
        namespace = namespace or str(metadata.get("namespace") or "")
        name = metadata.get("name") or f"{metadata.get('generateName', '')}*"
        request = ProgramRequest("create", resource, namespace, name)
        return self._ask(request, lambda: self._inner.create(resource, body, namespace))

    def update(self, resource: Resource, body: JsonDict, *, subresource: str = "") -> JsonDict:
        """Replace an object, or one of its subresources such as `status`."""
        metadata = metadata_of(body)
        request = ProgramRequest(
            _verb("update", subresource), resource, metadata.get("namespace", ""), metadata["name"]
        )
        return self._ask(
            request, lambda: self._inner.update(resource, body, subresource=subresource)
        )

    def patch(
        self,
        resource: Resource,
        name: str,
        patch: JsonDict | Sequence[JsonDict],
        namespace: str = "",
        *,
        type: PatchType = "merge",
        subresource: str = "",
        field_manager: str = "",
        force: bool = False,
    ) -> JsonDict:
        """Change an object by a patch."""
        request = ProgramRequest(_verb("patch", subresource), resource, namespace, name)
        do = partial(
            self._inner.patch,
            resource,
            name,
            patch,
            namespace,
            type=type,
            subresource=subresource,
            field_manager=field_manager,
            force=force,
        )
        return self._ask(request, do)

    def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Delete an object; `options` is a DeleteOptions mapping."""
        request = ProgramRequest("delete", resource, namespace, name)
        self._ask(request, lambda: self._inner.delete(resource, name, namespace, options=options))

    def delete_collection(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
    ) -> None:
        """Delete what a list with the same arguments returns, in one request."""
        request = ProgramRequest("deletecollection", resource, namespace)
        chosen = {"label_selector": label_selector, "field_selector": field_selector}
        self._ask(request, lambda: self._inner.delete_collection(resource, namespace, **chosen))

    def post(
        self, resource: Resource, name: str, subresource: str, body: JsonDict, namespace: str = ""
    ) -> JsonDict:
        """Create a subresource such as `binding`, `eviction` or `token`."""
        request = ProgramRequest(_verb("create", subresource), resource, namespace, name)
        return self._ask(
            request, lambda: self._inner.post(resource, name, subresource, body, namespace)
        )

    # --- what happens on the way ------------------------------------------------------------------

    def _ask(self, request: ProgramRequest, do: Callable[[], T]) -> T:
        """Send a request, with its planned fault. ApiError, ProgramKilled, TrialEnded."""
        self._process.check_alive(self._incarnation)
        plan, place = self._around.plan, (self._process.program, request.verb, request.plural)
        fault = plan.at_request(*place)
        if fault is not None:
            self._note(kinds.FAULT, fault.text)
            if lasts(fault):
                plan.begin(fault, self._around.engine.clock.now())
        if fault is None or fault.fault != "kill":
            self._check_refused(request)
        if fault is None:
            return self._do(request, do)
        match fault.fault:
            case "refuse":
                raise self._noted(request, refused_with(fault.code))
            case "slow":
                self._process.wait(fault.duration)
                self._check_refused(request)
                return self._do(request, do)
            case "conflict":
                with touched(self._around, request, self._process.program):
                    return self._do(request, do)
            case "lose-answer":
                self._do(request, do)
                self._process.wait(PATIENCE)
                raise self._noted(request, no_answer())
            case "late-write":
                self._later(request, do, fault.duration)
                self._process.wait(PATIENCE)
                raise self._noted(request, no_answer())
            case _:
                raise self._killed(request, do, fault)

    def _refusal(self, request: ProgramRequest) -> PlannedFault | None:
        """Return the fault for which a request is refused now."""
        now = self._around.engine.clock.now()
        program = self._process.program
        return self._around.plan.refusal(program, request.verb, request.plural, now)

    def _check_refused(self, request: ProgramRequest) -> None:
        """ApiError: a lasting fault refuses the request."""
        if (fault := self._refusal(request)) is not None:
            raise self._noted(request, lasting_refusal(fault))

    def _killed(
        self, request: ProgramRequest, do: Callable[[], T], fault: PlannedFault
    ) -> ProgramKilled:
        """Kill the program around a write; return the exception that ends its step."""
        if self._refusal(request) is not None:
            pass  # it does not reach the server
        elif fault.moment == "after":
            self._do(request, do)
        elif fault.moment == "during":
            # It is on its way, and may come after the next start has listed.
            self._later(request, do, fault.duration)
        self._note(kinds.LIFE, f"is killed {fault.moment} {request}")
        self._process.die(fault.duration)
        return ProgramKilled(self._process.name)

    def _do(self, request: ProgramRequest, do: Callable[[], T]) -> T:
        before = self._around.server.store.revision
        try:
            found = do()
        except ApiError as error:
            raise self._noted(request, error) from error
        after = self._around.server.store.revision
        self._around.answered(self._process.program, str(request))
        if request.writes:
            unchanged = "" if after > before else " (no change)"
            revision = after if after > before else 0
            self._note(kinds.WRITE, f"{request}{unchanged}", revision, request=request)
            if revision:
                place = (self._process.program, request.verb, request.plural)
                self._around.plan.committed(*place, revision)
        else:
            self._note(kinds.REQUEST, str(request), after, request=request)
        return found

    def _later(self, request: ProgramRequest, do: Callable[[], object], delay: int) -> None:
        def arrive() -> None:
            with suppress(ApiError):  # noted; the program will not hear of it
                self._do(request, do)

        self._around.engine.after(delay, arrive)

    def _old(
        self, request: ProgramRequest, fault: PlannedFault, selectors: Mapping[str, str]
    ) -> ObjectList | None:
        """Return a list as it was some changes ago; None if it did not exist."""
        resources = self._around.server.resources
        resource = request.resource
        kind = resources.kind(resource.group, resource.version, resource.plural)
        revision = self._around.revision_of(resource, fault)
        if revision < 1:
            return None
        options = ListOptions(
            revision=str(revision),
            match="Exact",
            label_selector=selectors["label_selector"],
            field_selector=selectors["field_selector"],
        )
        context = resources.context
        page = reading.list_page(context.own, kind, request.namespace, options)
        self._lag[resource] = fault.duration
        self._note(kinds.FAULT, fault.text, revision)
        shown = [context.rules.from_hub(kind, each.value) for each in page.items]
        return ObjectList(shown, str(page.revision))

    def _noted(self, request: ProgramRequest, error: ApiError) -> ApiError:
        self._around.refused(self._process.program, str(request), error.code)
        what = kinds.WRITE if request.writes else kinds.REQUEST
        text = f"{request} -> {error.code} {error.reason}"
        self._note(what, text, request=request, code=error.code)
        return error

    def _note(
        self,
        what: str,
        text: str,
        revision: int = 0,
        *,
        request: ProgramRequest | None = None,
        code: int = 0,
    ) -> None:
        history, name = self._around.history, self._process.name
        history.add(name, what, text, revision, request=request, code=code)


@contextmanager
def touched(around: TrialSurroundings, request: ProgramRequest, program: str) -> Iterator[None]:
    """Write to an object as another client, if it exists, just before a request is carried out.

    The program cannot have seen that write: to remove it is to lose it.
    """
    now = str(around.engine.clock.now())
    place = f"{request.namespace}/{request.name}".strip("/")
    patch = {"metadata": {"annotations": {TOUCHED: now}}}
    try:
        around.user.patch(request.resource, request.name, patch, request.namespace)
    except ApiError:
        yield
        return
    text = f"patch {request.plural} {place}"
    around.history.add("other", kinds.WRITE, text, around.server.store.revision)
    yield
    try:
        found = around.user.get(request.resource, request.name, request.namespace)
    except ApiError:
        return
    where = request.resource
    kind = around.server.resources.kind(where.group, where.version, where.plural)
    key = Key(kind.hub, request.namespace, request.name)
    if TOUCHED not in annotations_of(found) and not around.has_to_itself(key):
        lost = f"the annotation {TOUCHED} that another client wrote just before"
        text = f"{program}: {request} without resourceVersion removes {lost}"
        around.violated("lost-update", text)


def _verb(verb: str, subresource: str) -> str:
    return f"{verb}/{subresource}" if subresource else verb
