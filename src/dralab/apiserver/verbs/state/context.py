"""The context of the verbs, and small steps that several of them share."""

import random
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Final, NoReturn

from dralab.api.kinds import Kind, Kinds
from dralab.api.status import ApiError, Cause
from dralab.apiserver.access.admission.chain import Admission, PluginChain, ValidatingAdmission
from dralab.apiserver.access.admission.dynamic import DynamicAdmission
from dralab.apiserver.access.authentication.chain import Authentication
from dralab.apiserver.access.authentication.service_accounts import (
    STANDARD,
    ServiceAccountSettings,
    ServiceAccountTokens,
)
from dralab.apiserver.access.authorization.attributes import Attributes, Authorizer, forbidden
from dralab.apiserver.access.scope import RequestScope, deadline
from dralab.apiserver.access.users import ADMIN, User
from dralab.apiserver.guarded import guarded_by
from dralab.apiserver.long_work import LongWork
from dralab.apiserver.metrics.families import ServerMetrics
from dralab.apiserver.storage import Key, RevisionConflict, Store, Stored, StoreView
from dralab.apiserver.verbs.kinds.outgoing_calls import OutgoingCalls, OutgoingSettings
from dralab.apiserver.verbs.kinds.rules import Observer, Rules
from dralab.apiserver.verbs.state.following import Following
from dralab.apiserver.verbs.state.indexes import Indexes
from dralab.apiserver.verbs.state.options import WriteOptions
from dralab.kernel.clock import SECOND, Clock, rfc3339
from dralab.kernel.randomness import Randomness
from dralab.objects.metadata import labels_of
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass

MODIFIED: Final = (
    "the object has been modified; please apply your changes to the latest version and try again"
)
NAME_CHARACTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
MAX_GENERATED: Final = 58


@dataclass(kw_only=True)
class Context:
    """The parts of a server that the verbs use.

    `rules` says what each kind's objects must be; `admission` is asked in order about every
    write, `connecting` about what is created of a subresource that is not stored, such as
    `pods/eviction`; `validating` about every write once it is valid, `dynamic` after each of them
    for what users configure. `managed_fields` can be switched off if no client reads them.
    `authorizer` decides who may do what; without one every user may do everything.
    `service_accounts` signs their tokens.
    """

    store: Store
    clock: Clock
    randomness: Randomness
    kinds: Kinds
    rules: Rules
    admission: PluginChain[Admission] = field(default_factory=PluginChain)
    connecting: PluginChain[Admission] = field(default_factory=PluginChain)
    validating: PluginChain[ValidatingAdmission] = field(default_factory=PluginChain)
    dynamic: DynamicAdmission = field(default_factory=DynamicAdmission)
    metrics: ServerMetrics = field(default_factory=ServerMetrics)
    managed_fields: bool = True
    authorizer: Authorizer | None = None
    service_accounts: ServiceAccountSettings = STANDARD
    outgoing_settings: OutgoingSettings = field(default_factory=OutgoingSettings)
    on_kinds_changed: list[Callable[[], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dynamic.metrics = self.metrics.admission
        self.own = self.scope()  # to read outside of a request
        self.outgoing = OutgoingCalls(self.outgoing_settings, self.own.find, self.own.all_of)
        self.issuer = ServiceAccountTokens(
            self.clock, self.own, lambda: self.randomness.uuid("tokens"), self.service_accounts
        )
        self.authentication = Authentication(
            service_accounts=self.issuer, audiences=self.issuer.audiences
        )
        self.indexes = Indexes(self.store, self.rules)
        self._now = -1, ""  # a second and its text
        self.long_work = LongWork()
        self.following = Following(self.store, self.rules) if self.store.shared else None
        # How many objects admission has to read before one of a kind is created in a namespace.
        self.looked_into: list[Callable[[Kind, str], int]] = []

    def scope(
        self,
        *,
        user: User = ADMIN,
        options: WriteOptions | None = None,
        store: StoreView | None = None,
        internal: bool = False,
    ) -> "Scope":
        """Return the scope of a new request, over a view of the store if one is given."""
        return Scope(
            context=self,
            store=self.store if store is None else store,
            user=user,
            options=WriteOptions() if options is None else options,
            internal=internal,
        )

    def own_write(self, manager: str) -> "Scope":
        """Return the scope of a write of the server's own, by a part of it."""
        return self.scope(options=WriteOptions(agent=manager, manager=manager), internal=True)

    def may_compute(self, scope: "Scope", asked: int | None = None) -> "Scope":
        """Let a request compute for long until its time is over, which its client may `ask`."""
        scope.until, scope.work = deadline(asked), self.long_work
        return scope

    def derive(self, load: Callable[[], None], observers: Mapping[str, Observer]) -> None:
        """Keep state that is derived from objects.

        `observers` hear of each write to a collection, with the store's lock held; `load` makes
        all of it, now, and again after writes were taken back.
        """
        for hub, observer in observers.items():
            self.rules.observe(hub, observer)
        self.store.when_undone(load)
        with self.store.lock:
            load()

    def stored(self, kind: Kind, before: JsonDict | None, after: JsonDict | None) -> None:
        """Notify the observers of a collection that an object of it was written."""
        if self.following is None:
            self._notify(kind, before, after)
        else:
            self.following.settle(kind.hub)

    def put(self, before: Stored, after: Stored) -> None:
        """Notify the observers that only remember that an object was written along with another."""
        if self.following is None:
            self.rules.tell(after.key.resource, before.value, after.value)
        else:
            self.following.settle(after.key.resource)

    @guarded_by("store.lock")
    def _notify(self, kind: Kind, before: JsonDict | None, after: JsonDict | None) -> None:
        self.rules.stored(kind, before, after)

    def now(self) -> str:
        """Return the time as objects carry it."""
        second = self.clock.now() // SECOND
        known = self._now
        if second != known[0]:
            known = self._now = second, rfc3339(second * SECOND)
        return known[1]

    def uid(self) -> str:
        """Return a new UID."""
        return self.randomness.uuid("uid")

    @property
    def names(self) -> random.Random:
        """The stream of generated names."""
        return self.randomness.stream("names")

    def generated_name(self, prefix: str) -> str:
        """Return a name that starts with `prefix`."""
        suffix = "".join(self.names.choices(NAME_CHARACTERS, k=5))
        return prefix[:MAX_GENERATED] + suffix


@dataclass(slots=True, kw_only=True)
class Scope(RequestScope):
    """A request to the verbs of a server, and how it writes. DeleteOptions are given beside it."""

    context: Context
    options: WriteOptions = field(default_factory=WriteOptions)

    @property
    def rules(self) -> Rules:
        """What each kind's objects must be."""
        return self.context.rules

    def check_access(self, wanted: Attributes) -> None:
        """Refuse what the user may not do. ApiError Forbidden."""
        authorizer = self.context.authorizer
        if authorizer is not None and not self.user.is_superuser:
            decision = authorizer.authorize(wanted)
            if not decision.allowed:
                raise forbidden(wanted, decision)

    def labels_of_namespace(self, name: str) -> Mapping[str, str]:
        """Return the labels of a namespace, none if there is no such namespace."""
        found = self.find(Key("namespaces", "", name))
        return labels_of(found.value) if found else {}

    def put(self, stored: Stored, value: JsonDict) -> None:
        """Replace an object without admission, as admission does with a quota."""
        # The lock is held until the step ends in which this is the first write.
        found = self.store.update(stored.key, value, expect=stored.revision)
        self.context.put(stored, found)  # the lock is held: until the step ends

    def live(self, kind: Kind, namespace: str, name: str) -> Stored:
        """Return an object as it is stored; ApiError NotFound, StorageReadError."""
        found = self.find(key_of(kind, namespace, name))
        if found is None:
            raise ApiError.not_found(kind.plural, name, group=kind.group)
        return found


def key_of(kind: Kind, namespace: str, name: str) -> Key:
    """Return the key of an object."""
    return Key(kind.hub, namespace if kind.namespaced else "", name)


def storage_key(kind: Kind, key: Key) -> str:
    """Return the storage path of a real server, which its messages show."""
    from dralab.apiserver.storage.etcd.layout import PLACES  # not needed to start

    own = kind.plural if kind.custom is None else kind.hub
    place = "/".join(filter(None, (PLACES.get(kind.hub, own), key.namespace, key.name)))
    return f"/registry/{place}"


def conflict(kind: Kind, name: str) -> ApiError:
    """Return the error for a write that is not based on the latest state."""
    return ApiError.conflict(kind.plural, name, MODIFIED, group=kind.group)


def raise_conflict(kind: Kind, error: RevisionConflict) -> NoReturn:
    """Turn the store's errors into those of the API."""
    raise conflict(kind, error.key.name) from error


def too_large(requested: int, current: int) -> ApiError:
    """Return the error for a resourceVersion in the future."""
    return ApiError(
        "Timeout",
        f"Timeout: Too large resource version: {requested}, current: {current}",
        details={"retryAfterSeconds": 1},
        causes=[Cause(reason="ResourceVersionTooLarge", message="Too large resource version")],
    )


def revision_of(text: str, *, listing: bool = False) -> int | None:
    """Return a resourceVersion as a number: None if it is unset; ApiError if it is not a number.

    A list is a bad request then; of a watch or a get a real server says that it failed itself.
    """
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        why = (
            f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": '
            "invalid syntax"
        )
        if listing:
            raise ApiError.bad_request(f"invalid resource version: {why}")
        raise ApiError.failed(why)
    return int(text)


def metadata_of(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object's metadata; ApiError if it is not a mapping."""
    found = value.get("metadata")
    if isinstance(found, dict):
        return found
    raise ApiError.bad_request("metadata: expected an object")
