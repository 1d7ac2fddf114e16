"""The options of lists, watches and writes.

They are read from query parameters and validated with the messages of a real server.
Sources: k8s.io/apimachinery `meta/v1` validation, `meta/internalversion/validation`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Literal

from dralab.api import fields
from dralab.api.decoding import decoder_of
from dralab.api.fields import FieldError
from dralab.api.scalar_decoding import DecodingError, EmptyField
from dralab.api.status import ApiError
from dralab.apiserver.verbs.state.selectors import check_syntax
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass

Query = Mapping[str, Sequence[str]]
FieldValidation = Literal["", "Ignore", "Warn", "Strict"]
META: Final = "meta.k8s.io"
INTEGER: Final = re.compile(r"[+-]?[0-9]+")
LONGEST_MANAGER: Final = 128  # bytes
POLICIES: Final = ("Foreground", "Background", "Orphan")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOptions:
    """How to list or watch. `send_initial_events` is None if the client does not say."""

    label_selector: str = ""
    field_selector: str = ""
    limit: int = 0
    cont: str = ""
    revision: str = ""
    match: str = ""
    bookmarks: bool = False
    send_initial_events: bool | None = None
    timeout: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """The keys that a body gives more than once.

    Of JSON their `paths` and the body's `text`, unless that is long; of YAML the `lines` in which
    go-yaml says so.
    """

    paths: Sequence[str] = ()
    text: bytes = b""
    lines: Sequence[str] = ()

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self.paths or self.lines)


NO_REPEATS: Final = Repeats()


@dataclass(slots=True, kw_only=True)
class WriteOptions:
    """How to write.

    `manager` owns the changed fields; without it the verb falls back to `agent`, the client's
    program. `repeats` are the keys that the body gave twice. `kind` is that of the options
    themselves. `said` is the validation that the client asked for, which webhooks are told.
    `empties` are the empty lists and maps that the client sent and that are not stored, `gated` the
    fields that need a feature gate.
    """

    dry_run: bool = False
    manager: str = ""
    agent: str = "unknown"
    validation: FieldValidation = "Warn"
    said: FieldValidation = ""
    force: bool = False
    repeats: Repeats = NO_REPEATS
    empties: list[EmptyField] = field(default_factory=list)
    gated: list[str] = field(default_factory=list)
    # Set by apply: it has said already who owns what.
    applied: bool = False
    kind: str = "CreateOptions"

    @property
    def field_manager(self) -> str:
        """Who owns what is written."""
        return self.manager or self.agent

    def as_reviewed(self, operation: str) -> JsonDict:
        """Return the options as a webhook sees them; those of a patch depend on what it does.

        Source: k8s.io/apiserver `endpoints/handlers/patch.go` (patchToUpdateOptions).
        """
        kind = self.kind
        if not kind:
            return {}  # of a connection
        if kind == "PatchOptions":
            kind = "CreateOptions" if operation == "CREATE" else "UpdateOptions"
        found: JsonDict = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
        if self.dry_run:
            found["dryRun"] = ["All"]
        if self.manager:
            found["fieldManager"] = self.manager
        if self.said:
            found["fieldValidation"] = self.said
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """How to delete: seconds of grace (None: the object's own), what happens to dependents."""

    grace: int | None = None
    policy: str = ""
    uid: str = ""
    revision: str = ""
    dry_run: bool = False
    orphan_dependents: bool | None = None

    def as_reviewed(self, _operation: str = "DELETE") -> JsonDict:
        """Return the options as a webhook sees them."""
        found: JsonDict = {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"}
        if self.grace is not None:
            found["gracePeriodSeconds"] = self.grace
        if self.uid or self.revision:
            wanted = {"uid": self.uid, "resourceVersion": self.revision}
            found["preconditions"] = {name: text for name, text in wanted.items() if text}
        if self.orphan_dependents is not None:
            found["orphanDependents"] = self.orphan_dependents
        if self.policy:
            found["propagationPolicy"] = self.policy
        if self.dry_run:
            found["dryRun"] = ["All"]
        return found


PLAINLY: Final = DeleteOptions()


def list_options(query: Query, *, watch: bool, begins: bool = True) -> ListOptions:
    """Return the options of a list or watch; ApiError if they contradict each other."""
    options = ListOptions(
        label_selector=_one(query, "labelSelector"),
        field_selector=_one(query, "fieldSelector"),
        limit=_number(query, "limit"),
        cont=_one(query, "continue"),
        revision=_one(query, "resourceVersion"),
        match=_one(query, "resourceVersionMatch"),
        bookmarks=_flag(query, "allowWatchBookmarks"),
        send_initial_events=(
            _flag(query, "sendInitialEvents") if "sendInitialEvents" in query else None
        ),
        timeout=_number(query, "timeoutSeconds") or None,
    )
    check_syntax(options.label_selector, options.field_selector)
    check_list_options(options, watch=watch, begins=begins)
    return options


def check_list_options(options: ListOptions, *, watch: bool, begins: bool = True) -> None:
    """Raise where the parts of list options contradict each other.

    `begins` says that watches may begin with all objects that there are.
    """
    errors = _watch_errors(options, begins=begins) if watch else _list_errors(options)
    if errors:
        raise fields.invalid("ListOptions", "", errors, group=META)


def _watch_errors(options: ListOptions, *, begins: bool) -> list[FieldError]:
    errors = []
    name = "resourceVersionMatch"
    if options.send_initial_events is None:
        if options.match:
            errors.append(
                fields.forbidden(
                    "resourceVersionMatch",
                    "resourceVersionMatch is forbidden for watch unless sendInitialEvents is "
                    "provided",
                )
            )
    elif options.match != "NotOlderThan":
        errors.append(
            fields.forbidden(
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            )
        )
    if options.send_initial_events is not None and not begins:
        why = (
            "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
        )
        errors.append(fields.forbidden("sendInitialEvents", why))
    if options.match not in {"", "NotOlderThan"}:
        errors.append(fields.not_supported(name, options.match, ["NotOlderThan"]))
    # Without a revision, the match is NotOlderThan (SetListOptionsDefaults).
    defaulted = options.send_initial_events is None and options.revision in {"", "0"}
    if options.cont and (options.match or defaulted):
        why = "resourceVersionMatch is forbidden when continue is provided"
        errors.append(fields.forbidden(name, why))
    return errors


def _list_errors(options: ListOptions) -> list[FieldError]:
    errors = []
    name = "resourceVersionMatch"
    if options.match:
        if not options.revision:
            why = "resourceVersionMatch is forbidden unless resourceVersion is provided"
            errors.append(fields.forbidden(name, why))
        if options.cont:
            why = "resourceVersionMatch is forbidden when continue is provided"
            errors.append(fields.forbidden(name, why))
        if options.match not in {"Exact", "NotOlderThan"}:
            known = ["Exact", "NotOlderThan", ""]
            errors.append(fields.not_supported(name, options.match, known, ordered=True))
        if options.match == "Exact" and options.revision == "0":
            why = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
            errors.append(fields.forbidden(name, why))
    if options.send_initial_events is not None:
        why = "sendInitialEvents is forbidden for list"
        errors.append(fields.forbidden("sendInitialEvents", why))
    return errors


def write_options(
    query: Query, kind: str, *, agent: str = "", patch: str | None = None
) -> WriteOptions:
    """Return the options of a write; `kind` is CreateOptions, UpdateOptions or PatchOptions.

    `patch` is the type of a patch. ApiError tells all that is wrong, in upstream's order.

    `agent` is the User-Agent header: its part before the first `/` names the field manager
    of last resort.
    """
    if not query and patch is None:
        return WriteOptions(agent=agent.partition("/")[0] or "unknown", kind=kind)
    manager = _one(query, "fieldManager")
    errors: list[FieldError] = []
    if patch == "apply" and not manager:
        errors.append(fields.required("fieldManager", "is required for apply patch"))
    if patch not in {None, "apply"} and "force" in query:
        errors.append(fields.forbidden("force", "may not be specified for non-apply patch"))
    errors += _manager_errors(manager)
    dry_run = _dry_run(query.get("dryRun"), errors)
    validation = _one(query, "fieldValidation")
    if validation not in {"", "Ignore", "Warn", "Strict"}:
        known = ["", "Ignore", "Strict", "Warn"]
        errors.append(fields.not_supported("fieldValidation", validation, known))
    if errors:
        raise fields.invalid(kind, "", errors, group=META)
    return WriteOptions(
        dry_run=dry_run,
        manager=manager,
        agent=agent.partition("/")[0] or "unknown",
        validation=validation or "Warn",  # type: ignore[arg-type]  # one of the four, see above
        said=validation,  # type: ignore[arg-type]  # the same
        force=_flag(query, "force"),
        kind=kind,
    )


def delete_options(query: Query, body: Mapping[str, Any] | None) -> DeleteOptions:
    """Return the options of a delete: the body's where there is one, else the query's."""
    if body is None:
        source: dict[str, Any] = {name: texts[0] for name, texts in query.items() if texts}
        if grace := source.pop("gracePeriodSeconds", ""):
            source["gracePeriodSeconds"] = integer_of(grace)
        if "orphanDependents" in query:
            source["orphanDependents"] = _flag(query, "orphanDependents")
        preconditions, dry_runs = source, query.get("dryRun")
    else:
        source = _decoded(body) if body else {}
        preconditions, dry_runs = source.get("preconditions") or {}, source.get("dryRun")
    errors: list[FieldError] = []
    dry_run = _dry_run(dry_runs, errors)
    policy = source.get("propagationPolicy") or ""
    orphan_dependents = source.get("orphanDependents")
    if policy and orphan_dependents is not None:
        why = "orphanDependents and deletionPropagation cannot be both set"
        errors.append(fields.invalid_value("propagationPolicy", policy, why))
    if policy and policy not in POLICIES:
        known = ", ".join(f'"{name}"' for name in (*POLICIES, "nil"))
        detail = f"supported values: {known}"
        errors.append(FieldError("FieldValueNotSupported", "propagationPolicy", policy, detail))
    if errors:
        raise fields.invalid("DeleteOptions", "", errors, group=META)
    return DeleteOptions(
        grace=source.get("gracePeriodSeconds"),
        policy=policy,
        uid=str(preconditions.get("uid") or ""),
        revision=str(preconditions.get("resourceVersion") or ""),
        dry_run=dry_run,
        orphan_dependents=orphan_dependents,
    )


def _decoded(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options in a body as their types have them; unknown ones are dropped. ApiError."""
    decoder = decoder_of("v1", "DeleteOptions")
    if decoder is None:
        raise LookupError("the schema of DeleteOptions is missing")
    try:
        return dict(decoder.decode(body)[0])
    except DecodingError as error:
        raise ApiError.bad_request(str(error)) from error


def _manager_errors(manager: str) -> list[FieldError]:
    errors = []
    if len(manager.encode()) > LONGEST_MANAGER:
        errors.append(fields.too_long("fieldManager", LONGEST_MANAGER))
    position = 0
    for character in manager:
        if not character.isprintable():
            why = f"invalid character U+{ord(character):04X} (at position {position})"
            errors.append(fields.invalid_value("fieldManager", manager, why))
        position += len(character.encode())
    return errors


def _dry_run(values: Sequence[str] | None, errors: list[FieldError]) -> bool:
    if not values:
        return False
    wrong = [value for value in values if value != "All"]
    if wrong:
        known = 'supported values: "All"'
        errors.append(FieldError("FieldValueNotSupported", "dryRun", list(values), known))
    return True


def _one(query: Query, name: str) -> str:
    values = query.get(name)
    return values[0] if values else ""


def _flag(query: Query, name: str) -> bool:
    values = query.get(name)
    if not values:
        return False
    # A parameter without a value counts as set, as in apimachinery's conversion of queries.
    return values[0] != "0" and values[0].lower() != "false"


def _number(query: Query, name: str) -> int:
    return integer_of(query[name][0]) if query.get(name) else 0


def integer_of(text: str) -> int:
    """Parse an integer as Go's ParseInt does: 64 bits, ASCII digits only."""
    if INTEGER.fullmatch(text) is None:
        raise ApiError.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    if len(text) > 40 or not -(2**63) <= int(text) < 2**63:
        raise ApiError.bad_request(f'strconv.ParseInt: parsing "{text}": value out of range')
    return int(text)
