"""A client over HTTP, for any cluster that has a kubeconfig."""

import queue
import ssl
import tempfile
import threading
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

import orjson

from dralab import __version__
from dralab.api.status import CODES, ApiError
from dralab.kernel.http_client import (
    CutOffError,
    HttpConnections,
    HttpReply,
    StreamedReply,
    UnansweredError,
)
from dralab.objects.metadata import metadata_of
from dralab.runtime.client import ObjectList, PatchType, Resource, WatchEvent
from dralab.runtime.kubeconfig import ClusterAccess
from dralab.runtime.throttle import Throttle
from dralab.values.json_types import JsonDict

PATCH_TYPES: Final[Mapping[PatchType, str]] = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
REASONS: Final = {code: reason for reason, code in reversed(list(CODES.items()))}
PAGE: Final = 500
# A server ends a watch on time; between two answers silence is normal for longer than this.
WATCH_SECONDS: Final = 300
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0
TIMEOUT: Final = 30.0  # seconds, of one request
CONNECTIONS: Final = 64
# A read whose connection breaks is sent again: so often, as by client-go (`rest.Request`).
READ_AGAIN: Final = 10
READ_PAUSE: Final = 1.0  # seconds, at most


class RemoteClient:
    """The verbs over HTTP. Any thread may use it; each keeps its connection alive.

    ApiError with reason ServiceUnavailable: there is no answer. `throttle` holds requests back,
    watches too. A client of servers with other versions says where a collection is (`_place`), and
    converts what is sent and received.
    """

    def __init__(self, access: ClusterAccess, *, throttle: Throttle | None = None) -> None:
        self.access = access
        self._throttle = throttle
        self._closed = threading.Event()
        try:
            self._connections = HttpConnections(
                access.server,
                tls=_tls(access) if access.server.startswith("https://") else None,
                timeout=TIMEOUT,
                kept=CONNECTIONS,
            )
        except ValueError as error:
            raise ApiError("ServiceUnavailable", f"no server: {error}") from error
        self._headers = {
            "Accept": "application/json",
            "User-Agent": f"dralab/{__version__}",
        }
        if access.username and not access.token:
            given = b64encode(f"{access.username}:{access.password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {given}"

    def _place(self, resource: Resource) -> Resource:
        """Return a collection in the version in which the server is asked for it."""
        return resource

    def _converted(self, value: JsonDict, before: Resource, after: Resource) -> JsonDict:  # noqa: ARG002
        """Return an object of one version of a collection in another one."""
        return value

    def get(self, resource: Resource, name: str, namespace: str = "") -> JsonDict:
        """Return one object."""
        place = self._place(resource)
        found = self._call("GET", _url(place, namespace, name))
        return self._converted(found, place, resource)

    def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
    ) -> ObjectList:
        """Return the objects of a namespace, or of all where it is empty, page by page."""
        query = _selectors(label_selector, field_selector) | {"limit": str(PAGE)}
        items: list[JsonDict] = []
        place = self._place(resource)
        while True:
            answer = self._call("GET", _url(place, namespace), query)
            found = answer.get("items") or ()
            items += (self._converted(each, place, resource) for each in found)
            metadata = metadata_of(answer)
            if not metadata.get("continue"):
                return ObjectList(items, metadata.get("resourceVersion", ""))
            query = query | {"continue": metadata["continue"]}

    def watch(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        revision: str,
        label_selector: str = "",
        field_selector: str = "",
    ) -> "RemoteWatch":
        """Return the changes after `revision`; a broken connection is taken up where it broke."""
        query = _selectors(label_selector, field_selector) | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        place = self._place(resource)
        read = None if place is resource else partial(self._converted, before=place, after=resource)
        return RemoteWatch(self, _url(place, namespace), query, revision, read)

    def create(self, resource: Resource, body: JsonDict, namespace: str = "") -> JsonDict:
        """Store a new object."""
        namespace = namespace or body["metadata"].get("namespace", "")
        place = self._place(resource)
        sent = self._converted(body, resource, place)
        found = self._call("POST", _url(place, namespace), body=sent)
        return self._converted(found, place, resource)

    def update(self, resource: Resource, body: JsonDict, *, subresource: str = "") -> JsonDict:
        """Replace an object, or one of its subresources such as `status`."""
        metadata, place = body["metadata"], self._place(resource)
        url = _url(place, metadata.get("namespace", ""), metadata["name"], subresource)
        found = self._call("PUT", url, body=self._converted(body, resource, place))
        return self._converted(found, place, resource)

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
        """Change an object by a patch; the status has the same form in every version."""
        query = {"fieldManager": field_manager} if field_manager else {}
        if force:
            query["force"] = "true"
        place = self._place(resource)
        if isinstance(patch, dict) and "apiVersion" in patch:
            patch = self._converted(patch, resource, place)
        found = self._call(
            "PATCH",
            _url(place, namespace, name, subresource),
            query,
            body=patch,
            content_type=PATCH_TYPES[type],
        )
        return self._converted(found, place, resource)

    def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Delete an object; `options` is a DeleteOptions mapping."""
        body = None
        if options:
            body = {"kind": "DeleteOptions", "apiVersion": "v1", **options}
        self._call("DELETE", _url(self._place(resource), namespace, name), body=body)

    def delete_collection(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
    ) -> None:
        """Delete what a list with the same arguments returns, in one request."""
        query = _selectors(label_selector, field_selector)
        self._call("DELETE", _url(self._place(resource), namespace), query)

    def post(
        self, resource: Resource, name: str, subresource: str, body: JsonDict, namespace: str = ""
    ) -> JsonDict:
        """Create a subresource such as `binding`, `eviction` or `token`."""
        return self._call("POST", _url(resource, namespace, name, subresource), body=body)

    def revision(self, url: str) -> int:
        """Return the current revision of a server, from a list."""
        answer = self._call("GET", url, {"limit": "1"})
        return int(metadata_of(answer).get("resourceVersion") or 0)

    def close(self) -> None:
        """Close the connections; further requests fail."""
        self._closed.set()
        self._connections.close()

    def stream(self, url: str, query: Mapping[str, str], timeout: float) -> StreamedReply:
        """Return the open answer to a request whose body comes bit by bit.

        `timeout` is in seconds, for the next bit.
        """
        self._wait_for_turn()
        try:
            path = f"{url}?{urlencode(query)}"
            answer = self._connections.open(
                "GET", path, self._sent_headers().items(), timeout=timeout
            )
            if answer.status < 400:
                return answer
            body = b"".join(answer.pieces())
        except UnansweredError as error:
            raise self._no_answer(error) from error
        answer.close()
        raise _refusal(answer.status, body)

    def _call(
        self,
        method: str,
        url: str,
        query: Mapping[str, str] | None = None,
        *,
        body: Any = None,
        content_type: str = "application/json",
    ) -> JsonDict:
        headers = self._sent_headers()
        sent = None
        if body is not None:
            sent = orjson.dumps(body)
            headers = {**headers, "Content-Type": content_type}
        path = f"{url}?{urlencode(query)}" if query else url
        try:
            status, content, _ = self._ask(method, path, headers, sent)
        except UnansweredError as error:
            raise self._no_answer(error) from error
        if status >= 400:
            raise _refusal(status, content)
        try:
            found: JsonDict = orjson.loads(content)
        except orjson.JSONDecodeError as error:
            raise ApiError("InternalError", f"{method} {url}: the answer is not JSON") from error
        if not isinstance(found, dict):
            raise ApiError("InternalError", f"{method} {url}: the answer is not an object")
        return found

    def _ask(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None
    ) -> HttpReply:
        """Return the answer; a read whose connection breaks is sent again. UnansweredError."""
        pause = FIRST_PAUSE
        for _ in range(READ_AGAIN if method == "GET" else 0):
            self._wait_for_turn()
            try:
                return self._connections.ask(method, path, headers.items(), body)
            except CutOffError:
                self._closed.wait(pause)
                pause = min(pause * 2, READ_PAUSE)
        self._wait_for_turn()
        return self._connections.ask(method, path, headers.items(), body)

    def _sent_headers(self) -> dict[str, str]:
        # Asked for each request: the token of a pod changes (client-go's transport reads it anew).
        token = self.access.current_token()
        return self._headers | {"Authorization": f"Bearer {token}"} if token else self._headers

    def _wait_for_turn(self) -> None:
        """Delay a request as the throttle says. ApiError: the client is closed."""
        if self._closed.is_set():
            raise ApiError("ServiceUnavailable", "the client is closed")
        if self._throttle is not None:
            self._closed.wait(self._throttle.delay())

    def _no_answer(self, error: UnansweredError) -> ApiError:
        return ApiError("ServiceUnavailable", f"{self.access.server} does not answer: {error}")


class RemoteWatch:
    """A watch whose stream its own thread reads."""

    def __init__(
        self,
        client: RemoteClient,
        url: str,
        query: Mapping[str, str],
        revision: str,
        read: Callable[[JsonDict], JsonDict] | None = None,
    ) -> None:
        self.revision = revision
        self._client = client
        self._url = url
        self._query = query
        self._arrived: queue.SimpleQueue[WatchEvent | ApiError] = queue.SimpleQueue()
        self._ready: Callable[[], None] = lambda: None
        # What becomes of the objects of events before anybody sees them.
        self._read_as = read
        self._closed = threading.Event()
        self._answer: Any = None
        threading.Thread(target=self._read, name=f"watch {url}", daemon=True).start()

    def next(self, timeout: float | None = None) -> WatchEvent | None:
        """Return the next change; None if none comes within `timeout` seconds."""
        try:
            if timeout == 0:
                found = self._arrived.get_nowait()
            else:
                found = self._arrived.get(timeout=timeout)
        except queue.Empty:
            return None
        if isinstance(found, ApiError):
            raise found
        if self._read_as is not None and found.type not in {"BOOKMARK", "ERROR"}:
            return WatchEvent(found.type, self._read_as(found.object))
        return found

    def notify(self, ready: Callable[[], None]) -> None:
        """Call `ready` each time a change has arrived."""
        self._ready = ready
        if not self._arrived.empty():
            ready()

    def close(self) -> None:
        """Stop; the stream is shut."""
        self._closed.set()
        answer = self._answer
        if answer is not None:
            # Shutting the socket wakes the reading thread, which then lets it go.
            answer.shutdown()

    def _read(self) -> None:
        self._pause = FIRST_PAUSE
        while not self._closed.is_set():
            try:
                self._follow()
            except ApiError as error:
                if error.code in {410, 404, 401, 403}:
                    self._arrived.put(error)
                    self._ready()
                    return
            except (UnansweredError, OSError, ValueError, KeyError, TypeError):
                pass  # the connection broke or was shut: take it up again from the revision
            self._closed.wait(self._pause)
            self._pause = min(self._pause * 2, LONGEST_PAUSE)
            if self._began_anew():
                self._arrived.put(ApiError("Expired", "the server has restarted"))
                self._ready()
                return

    def _began_anew(self) -> bool:
        """Return whether the server's revision went back: its data were lost or reset."""
        if self._closed.is_set():
            return False
        try:
            return self._client.revision(self._url) < int(self.revision or 0)
        except (ApiError, ValueError):
            return False  # no answer yet: the next attempt will tell

    def _follow(self) -> None:
        """Handle changes until the stream ends. ApiError, UnansweredError, ValueError."""
        answer = self._client.stream(
            self._url, {**self._query, "resourceVersion": self.revision}, WATCH_SECONDS * 2
        )
        self._answer = answer
        try:
            if self._closed.is_set():
                return  # closed meanwhile, before there was a stream to shut
            rest = b""
            for piece in answer.pieces():
                *lines, rest = (rest + piece).split(b"\n")
                self._take(lines)
            self._take([rest])
        finally:
            self._answer = None
            answer.close()

    def _take(self, lines: Iterable[bytes]) -> None:
        """Handle the changes in some lines. ApiError: the server ends the watch."""
        arrived = False
        try:
            for line in lines:
                if not line.strip():
                    continue
                document = orjson.loads(line)
                what, obj = document["type"], document["object"]
                if what == "ERROR":
                    raise ApiError.from_status(obj)
                revision = obj["metadata"].get("resourceVersion", self.revision)
                if what != "BOOKMARK":
                    self._arrived.put(WatchEvent(what, obj))
                    arrived = True
                self.revision = revision
        finally:
            if arrived:  # one call for all that have come together
                self._pause = FIRST_PAUSE
                self._ready()


def _url(resource: Resource, namespace: str = "", name: str = "", subresource: str = "") -> str:
    url = resource.path
    if namespace and resource.namespaced:
        url += f"/namespaces/{quote(namespace, safe='')}"
    url += f"/{resource.plural}"
    if name:
        url += f"/{quote(name, safe='')}"
    return f"{url}/{subresource}" if subresource else url


def _selectors(label_selector: str, field_selector: str) -> dict[str, str]:
    query = {}
    if label_selector:
        query["labelSelector"] = label_selector
    if field_selector:
        query["fieldSelector"] = field_selector
    return query


def _refusal(code: int, data: bytes) -> ApiError:
    try:
        status = orjson.loads(data)
    except orjson.JSONDecodeError:
        status = None
    if isinstance(status, dict) and status.get("kind") == "Status":
        return ApiError.from_status(status)
    text = data.decode(errors="replace").strip()[:500] or f"HTTP {code}"
    return ApiError(REASONS.get(code, "InternalError"), text, code=code)


def _tls(access: ClusterAccess) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=access.ca)
    # Certificate authorities made by test clusters often lack what strict mode asks for.
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    if access.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if access.certificate and access.key:
        with tempfile.TemporaryDirectory() as directory:
            pair = Path(directory) / "client.pem"
            pair.touch(mode=0o600)
            pair.write_text(access.certificate + "\n" + access.key, encoding="utf-8")
            context.load_cert_chain(pair)
    return context
