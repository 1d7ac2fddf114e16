"""Conversion webhooks: the versions of a custom resource, as another program converts them.

An object is stored in one version. What a webhook made of it for another version is kept and used
again while the object is the same: the loop, which encodes lists and watches, cannot wait for a
webhook. A write converts ahead, to the versions that were asked for so far.

Source of checks and words: k8s.io/apiextensions-apiserver `pkg/apiserver/conversion`.
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from threading import Lock
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import orjson

from dralab.api.kinds import Kind
from dralab.api.metadata import annotation_problems, label_problems
from dralab.api.status import ApiError
from dralab.apiserver.access.scope import MustWait, RequestScope
from dralab.apiserver.outgoing.answers import read_answer, status_words
from dralab.apiserver.outgoing.targets import AWAITED, Overdue, Unreachable
from dralab.apiserver.verbs.kinds.outgoing_calls import OutgoingCalls
from dralab.kernel.randomness import Randomness
from dralab.values.json_patches import go_json_kind
from dralab.values.json_types import JsonDict

GROUP: Final = "apiextensions.k8s.io"
KNOWN: Final = ("v1", "v1beta1")
TIMEOUT: Final = 30.0
FAILURES: Final = 1000  # that are kept
KEPT: Final = 100_000  # objects,
KEPT_BYTES: Final = 256 * 1024 * 1024  # and of the JSON of what webhooks made of them
FREE: Final = ("labels", "annotations")  # of the metadata; the rest stays as it was


_Place = tuple[str, str, str]  # the namespace and name of an object, and a version


class _Kept(NamedTuple):
    """A converted object, before and after."""

    before: JsonDict
    after: JsonDict
    size: int


class KeptConversions:
    """A cache of converted objects; the oldest are dropped first. Thread-safe.

    The last two states of each: a watch with a selector asks for both sides of a change.
    """

    def __init__(self, *, most: int = KEPT, most_bytes: int = KEPT_BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._all: dict[_Place, tuple[_Kept, ...]] = {}
        self._lock = Lock()
        self.size = 0  # bytes

    def get(self, place: _Place) -> Sequence[_Kept]:
        """Return the states of an object that are kept, the newest first."""
        return self._all.get(place, ())

    def put(self, place: _Place, before: JsonDict, after: JsonDict) -> None:
        """Keep a state of an object."""
        kept = _Kept(before, after, len(orjson.dumps(after)))
        with self._lock:
            known = self._all.pop(place, ())
            self._all[place] = (kept, *known[:1])
            self.size += kept.size - sum(each.size for each in known[1:])
            while len(self._all) > 1 and (
                len(self._all) > self._most or self.size > self._most_bytes
            ):
                oldest = self._all.pop(next(iter(self._all)))
                self.size -= sum(each.size for each in oldest)


class ConversionWebhook:
    """Converts the objects of one custom resource between its versions.

    `hub` is the apiVersion in which they are stored, `spec` that of the definition.
    """

    def __init__(
        self, spec: Mapping[str, Any], hub: str, calls: OutgoingCalls, randomness: Randomness
    ) -> None:
        webhook = spec["conversion"].get("webhook") or {}
        self.kind: str = spec["names"]["kind"]
        self.hub = hub
        self._client: Mapping[str, Any] = webhook.get("clientConfig") or {}
        self._version = next(
            (each for each in webhook.get("conversionReviewVersions") or () if each in KNOWN), None
        )
        self._calls = calls
        self._randomness = randomness
        self._kept = KeptConversions()
        self._wanted: set[str] = set()
        # Why objects that were stored could not be converted: their watches say it.
        self._failures: dict[_Place, tuple[JsonDict, ApiError]] = {}

    @property
    def is_asked(self) -> bool:
        """Whether versions are asked for that a write has to be converted to."""
        return bool(self._wanted - {self.hub})

    def to_hub(self, kind: Kind, value: JsonDict, scope: RequestScope | None) -> JsonDict:
        """Return an object in the version in which it is stored. ApiError, MustWait."""
        self._wanted.add(kind.api_version)
        return self._converted([value], self.hub, scope)[0]

    def from_hub(self, kind: Kind, value: JsonDict, scope: RequestScope | None) -> JsonDict:
        """Return a stored object in another version. ApiError, MustWait."""
        return self._in_version([value], kind.api_version, scope)[0]

    def prepare(self, kind: Kind, values: Sequence[JsonDict], scope: RequestScope) -> None:
        """Convert several objects in one call. ApiError, MustWait."""
        self._in_version(values, kind.api_version, scope)

    def foresee(self, value: JsonDict, scope: RequestScope) -> None:
        """Convert an object that is about to be stored to the requested versions.

        If that fails, the requests for it say why. MustWait.
        """
        for api_version in tuple(self._wanted):
            try:
                self._in_version([value], api_version, scope)
            except ApiError as error:
                if len(self._failures) >= FAILURES:
                    self._failures.clear()
                self._failures[_place(value, api_version)] = value, error

    def _in_version(
        self, values: Sequence[JsonDict], api_version: str, scope: RequestScope | None
    ) -> list[JsonDict]:
        self._wanted.add(api_version)
        known = [self._known(value, api_version) for value in values]
        missing = [value for value, found in zip(values, known, strict=True) if found is None]
        if not missing:
            return [found for found in known if found is not None]
        made = iter(self._converted(missing, api_version, scope))
        result = []
        for value, found in zip(values, known, strict=True):
            if found is not None:
                result.append(found)
                continue
            after = next(made)
            self._kept.put(_place(value, api_version), value, after)
            result.append(after)
        return result

    def _known(self, value: JsonDict, api_version: str) -> JsonDict | None:
        """Return the cached conversion of an object, if it is one of its last two states."""
        for before, after, _ in self._kept.get(_place(value, api_version)):
            if before is value or _alike(before, value):
                return {**after, "metadata": _restored(value, after["metadata"])}
        return None

    def _converted(
        self, values: Sequence[JsonDict], api_version: str, scope: RequestScope | None
    ) -> list[JsonDict]:
        """Call the webhook. ApiError, MustWait.

        If it fails for several objects, it is asked for each: a real server reads them so, and
        tells of the first that cannot be converted.
        """
        try:
            return self._made_of(values, api_version, scope)
        except ApiError:
            if len(values) == 1:
                raise
        return [self._made_of([value], api_version, scope)[0] for value in values]

    def _made_of(
        self, values: Sequence[JsonDict], api_version: str, scope: RequestScope | None
    ) -> list[JsonDict]:
        if scope is None:
            before, failure = self._failures.get(_place(values[0], api_version), ({}, MustWait()))
            raise failure if _alike(before, values[0]) else MustWait
        left = scope.time_left(TIMEOUT)
        of = values[0].get("apiVersion")
        name = f"{of}, Kind={self.kind}"
        try:
            found = self._asked(values, api_version, left)
            if len(found) != len(values):
                raise _failure(
                    f"conversion webhook for {name} returned {len(found)} objects, expected "
                    f"{len(values)}"
                )
        except _Malformed as error:
            raise _failure(f"conversion webhook for {name} failed: {error}") from error
        result = []
        for value, made in zip(values, found, strict=True):
            try:
                result.append(_checked(value, made, api_version, self.kind))
            except _NoObject as error:
                raise _failure(str(error)) from error
            except _OtherConverted as error:
                raise _failure(f"conversion webhook for {name} {error.place}: {error}") from error
        return result

    def _asked(self, values: Sequence[JsonDict], api_version: str, left: float) -> Sequence[Any]:
        """Return objects converted by a webhook. _Malformed."""
        if self._version is None:
            raise _Malformed("no supported conversion review versions")
        uid = self._randomness.uuid("conversions")
        review = {
            "kind": "ConversionReview",
            "apiVersion": f"{GROUP}/{self._version}",
            "request": {
                "uid": uid,
                "desiredAPIVersion": api_version,
                "objects": list(values),
            },
        }
        query = urlencode({"timeout": f"{int(TIMEOUT)}s"})
        url = str(self._client.get("url") or "the webhook's service")
        try:
            target = self._calls.targets.of_config(self._client)
            url = target.url
            answer = self._calls.client.call(
                target, orjson.dumps(review), timeout=left, query=query
            )
        except Unreachable as error:
            late = AWAITED if isinstance(error, Overdue) else ""
            raise _Malformed(f'Post "{url}?{query}": {error}{late}') from error
        if answer.status != HTTPStatus.OK:
            raise _Malformed(status_words(answer))
        try:
            found = read_answer(answer)
        except ValueError as error:
            raise _Malformed(str(error)) from error
        response = found.get("response")
        wanted = f"{GROUP}/{self._version}"
        api_version, kind = found.get("apiVersion") or "", found.get("kind") or ""
        if (api_version, kind) == (
            f"{GROUP}/v1beta1",
            "ConversionReview",
        ) and wanted != api_version:
            raise _Malformed(
                "converting (v1beta1.ConversionReview) to (v1.ConversionReview): unknown conversion"
            )
        if (api_version, kind) != (wanted, "ConversionReview"):
            raise _Malformed(
                f"expected webhook response of {wanted}, Kind=ConversionReview, got "
                f"{api_version or '/'}, Kind={kind}"
            )
        if not isinstance(response, dict):
            raise _Malformed("no response provided")
        if self._version == "v1" and response.get("uid") != uid:
            raise _Malformed(f'expected response.uid="{uid}", got "{response.get("uid") or ""}"')
        result = response.get("result") or {}
        if result.get("status") != "Success":
            why = f"response.result.status was '{result.get('status') or ''}', not 'Success'"
            raise _Malformed(result.get("message") or why)
        converted = response.get("convertedObjects") or ()
        return converted if isinstance(converted, list) else ()


class _Malformed(Exception):  # noqa: N818 - a fact, which messages tell
    """An answer is malformed or missing."""


class _NoObject(Exception):  # noqa: N818 - a fact, which messages tell
    """A converted object is not an object."""


class _OtherConverted(Exception):  # noqa: N818 - a fact, which messages tell
    """A converted object has changed its identity; `place` begins the message."""

    def __init__(self, why: str, place: str) -> None:
        super().__init__(why)
        self.place = place


def _other_kind(why: str) -> _OtherConverted:
    return _OtherConverted(why, "returned invalid object at index 0")


def _other_object(why: str) -> _OtherConverted:
    return _OtherConverted(why, "returned invalid object")


def _other_metadata(why: str) -> _OtherConverted:
    return _OtherConverted(why, "returned invalid metadata")


def _failure(message: str) -> ApiError:
    # As kube-apiserver: an error of no kind.
    return ApiError("", message, code=HTTPStatus.INTERNAL_SERVER_ERROR)


def _place(value: JsonDict, api_version: str) -> _Place:
    metadata = value.get("metadata") or {}
    return metadata.get("namespace") or "", metadata.get("name") or "", api_version


def _alike(before: JsonDict, value: JsonDict) -> bool:
    """Return whether two states of an object are converted alike."""
    if value.keys() != before.keys() or any(
        part != "metadata" and item != before[part] for part, item in value.items()
    ):
        return False
    old, new = before.get("metadata") or {}, value.get("metadata") or {}
    return all(old.get(part) == new.get(part) for part in (*FREE, "uid"))


def _checked(value: JsonDict, made: Any, api_version: str, kind: str) -> JsonDict:
    """Return a converted object with the metadata that it may not change.

    _OtherConverted, _NoObject.
    """
    if made is None:
        raise _NoObject("unexpected end of JSON input")
    if not isinstance(made, dict):
        kind_given = go_json_kind(made)
        raise _NoObject(
            f"json: cannot unmarshal {kind_given} into Go value of type map[string]interface {{}}"
        )
    if made.get("apiVersion") != api_version:
        raise _other_kind(
            f"invalid groupVersion (expected {api_version}, received {made.get('apiVersion')})"
        )
    if made.get("kind") != kind:
        raise _other_kind(f"invalid kind (expected {kind}, received {made.get('kind')})")
    metadata = made.get("metadata")
    if not isinstance(metadata, dict):
        raise _other_object("missing metadata in converted object")
    before = value.get("metadata") or {}
    for part in ("name", "namespace", "uid"):
        old, new = before.get(part) or "", metadata.get(part) or ""
        if old != new:
            words = part.upper() if part == "uid" else part
            raise _other_object(f"must have the same {words}: {old} != {new}")
    for part in FREE:
        texts = metadata.get(part)
        if texts is not None and not (
            isinstance(texts, dict) and all(isinstance(each, str) for each in texts.values())
        ):
            raise _other_metadata(f"invalid metadata.{part} in converted object")
    errors = [
        *label_problems(metadata.get("labels") or {}, "metadata.labels"),
        *annotation_problems(metadata.get("annotations") or {}),
    ]
    if errors:
        shown = ", ".join(map(str, errors))
        raise _other_metadata(f"[{shown}]" if len(errors) > 1 else shown)
    return {**made, "metadata": _restored(value, metadata)}


def _restored(value: JsonDict, converted: Mapping[str, Any]) -> JsonDict:
    """Return the metadata of an object with the labels and annotations of a converted one."""
    found = {part: item for part, item in (value.get("metadata") or {}).items() if part not in FREE}
    found |= {part: converted[part] for part in FREE if converted.get(part)}
    return found
