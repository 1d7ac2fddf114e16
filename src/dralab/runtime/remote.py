"""A client over HTTP, for any cluster that has a kubeconfig."""

import queue
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

import orjson
import urllib3

from dralab import __version__
from dralab.api.status import CODES, ApiError
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


class RemoteClient:
    """The verbs over HTTP. Any thread may use it; each keeps its connection alive.

    `timeout` bounds one request, in seconds. ApiError with reason ServiceUnavailable: there is
    no answer. `throttle` holds requests back, watches too.
    """

    def __init__(
        self,
        access: ClusterAccess,
        *,
        timeout: float = 30.0,
        connections: int = 64,
        throttle: Throttle | None = None,
    ) -> None:
        self.access = access
        self._throttle = throttle
        options: dict[str, Any] = {}
        if access.server.startswith("https://"):
            options["ssl_context"] = _tls(access)
            if access.insecure:
                options["assert_hostname"] = False
        self._closed = threading.Event()
        self._pool = urllib3.PoolManager(
            maxsize=connections,
            block=False,
            retries=False,
            timeout=urllib3.Timeout(connect=10.0, read=timeout),
            **options,
        )
        self._headers = {
            "Accept": "application/json",
            "User-Agent": f"dralab/{__version__}",
        }
        if access.username and not access.token:
            self._headers |= urllib3.make_headers(basic_auth=f"{access.username}:{access.password}")

    def get(self, resource: Resource, name: str, namespace: str = "") -> JsonDict:
        """Return one object."""
        return self._call("GET", _url(resource, namespace, name))

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
        while True:
            answer = self._call("GET", _url(resource, namespace), query)
            items += answer.get("items") or []
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
        return RemoteWatch(self, _url(resource, namespace), query, revision)

    def create(self, resource: Resource, body: JsonDict, namespace: str = "") -> JsonDict:
        """Store a new object."""
        namespace = namespace or body["metadata"].get("namespace", "")
        return self._call("POST", _url(resource, namespace), body=body)

    def update(self, resource: Resource, body: JsonDict, *, subresource: str = "") -> JsonDict:
        """Replace an object, or one of its subresources such as `status`."""
        metadata = body["metadata"]
        url = _url(resource, metadata.get("namespace", ""), metadata["name"], subresource)
        return self._call("PUT", url, body=body)

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
        query = {"fieldManager": field_manager} if field_manager else {}
        if force:
            query["force"] = "true"
        return self._call(
            "PATCH",
            _url(resource, namespace, name, subresource),
            query,
            body=patch,
            content_type=PATCH_TYPES[type],
        )

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
        self._call("DELETE", _url(resource, namespace, name), body=body)

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
        self._call("DELETE", _url(resource, namespace), query)

    def post(
        self, resource: Resource, name: str, subresource: str, body: JsonDict, namespace: str = ""
    ) -> JsonDict:
        """Create a subresource such as `binding`, `eviction` or `token`."""
        return self._call("POST", _url(resource, namespace, name, subresource), body=body)

    def revision(self, url: str) -> int:
        """Return the present revision of a server, as a collection tells it."""
        answer = self._call("GET", url, {"limit": "1"})
        return int(metadata_of(answer).get("resourceVersion") or 0)

    def close(self) -> None:
        """Close the connections; no request opens one any more."""
        self._closed.set()
        self._pool.clear()

    def stream(self, url: str, query: Mapping[str, str], read_timeout: float) -> Any:
        """Return the open response of a request whose body comes bit by bit."""
        answer = self._request(
            "GET",
            f"{url}?{urlencode(query)}",
            preload_content=False,
            timeout=urllib3.Timeout(connect=10.0, read=read_timeout),
        )
        if answer.status >= 400:
            raise _refusal(answer.status, answer.data)
        return answer

    def _call(
        self,
        method: str,
        url: str,
        query: Mapping[str, str] | None = None,
        *,
        body: Any = None,
        content_type: str = "application/json",
    ) -> JsonDict:
        options: dict[str, Any] = {}
        if body is not None:
            options["body"] = orjson.dumps(body)
            options["headers"] = self._sent_headers() | {"Content-Type": content_type}
        answer = self._request(method, f"{url}?{urlencode(query)}" if query else url, **options)
        if answer.status >= 400:
            raise _refusal(answer.status, answer.data)
        try:
            found: JsonDict = orjson.loads(answer.data)
        except orjson.JSONDecodeError as error:
            raise ApiError("InternalError", f"{method} {url}: the answer is not JSON") from error
        if not isinstance(found, dict):
            raise ApiError("InternalError", f"{method} {url}: the answer is not an object")
        return found

    def _sent_headers(self) -> dict[str, str]:
        # Asked for each request: the token of a pod changes (client-go's transport reads it anew).
        token = self.access.current_token()
        return self._headers | {"Authorization": f"Bearer {token}"} if token else self._headers

    def _request(self, method: str, url: str, **options: Any) -> Any:
        if "headers" not in options:
            options["headers"] = self._sent_headers()
        if self._closed.is_set():
            raise ApiError("ServiceUnavailable", "the client is closed")
        if self._throttle is not None:
            self._closed.wait(self._throttle.delay())
        try:
            return self._pool.request(method, self.access.server + url, **options)
        except urllib3.exceptions.HTTPError as error:
            raise ApiError(
                "ServiceUnavailable", f"{self.access.server} does not answer: {error}"
            ) from error
        finally:
            if self._closed.is_set():  # meanwhile: who closed it has not seen this connection
                self._pool.clear()


class RemoteWatch:
    """A watch whose stream its own thread reads."""

    def __init__(
        self, client: RemoteClient, url: str, query: Mapping[str, str], revision: str
    ) -> None:
        self.revision = revision
        self._client = client
        self._url = url
        self._query = query
        self._arrived: queue.SimpleQueue[WatchEvent | ApiError] = queue.SimpleQueue()
        self._ready: Callable[[], None] = lambda: None
        self._closed = threading.Event()
        self._answer: Any = None
        threading.Thread(target=self._read, name=f"watch {url}", daemon=True).start()

    def next(self, timeout: float | None = None) -> WatchEvent | None:
        """Return the next change; None if there is none within `timeout` seconds."""
        try:
            if timeout == 0:
                found = self._arrived.get_nowait()
            else:
                found = self._arrived.get(timeout=timeout)
        except queue.Empty:
            return None
        if isinstance(found, ApiError):
            raise found
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
        pause = FIRST_PAUSE
        while not self._closed.is_set():
            try:
                for event in self._events():
                    pause = FIRST_PAUSE
                    self._arrived.put(event)
                    self._ready()
            except ApiError as error:
                if error.code in {410, 404, 401, 403}:
                    self._arrived.put(error)
                    self._ready()
                    return
            except (urllib3.exceptions.HTTPError, OSError, ValueError, AttributeError):
                pass  # the connection broke or was shut: take it up again from the revision
            self._closed.wait(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
            if self._began_anew():
                self._arrived.put(ApiError("Expired", "the server has restarted"))
                self._ready()
                return

    def _began_anew(self) -> bool:
        """Return whether the server is behind what it said before: its data were lost or reset."""
        if self._closed.is_set():
            return False
        try:
            return self._client.revision(self._url) < int(self.revision or 0)
        except (ApiError, ValueError):
            return False  # no answer yet: the next attempt will tell

    def _events(self) -> Iterator[WatchEvent]:
        answer = self._client.stream(
            self._url, {**self._query, "resourceVersion": self.revision}, WATCH_SECONDS * 2
        )
        self._answer = answer
        try:
            if self._closed.is_set():
                return  # closed meanwhile, before there was a stream to shut
            for line in _lines(answer):
                document = orjson.loads(line)
                obj = document["object"]
                if document["type"] == "ERROR":
                    raise ApiError.from_status(obj)
                self.revision = obj["metadata"].get("resourceVersion", self.revision)
                if document["type"] != "BOOKMARK":
                    yield WatchEvent(document["type"], obj)
        finally:
            self._answer = None
            answer.close()


def _lines(answer: Any) -> Iterator[bytes]:
    rest = b""
    # `read_chunked` yields each chunk as it comes: a server sends one event, or several, a chunk.
    chunks = answer.read_chunked() if answer.chunked else iter(lambda: answer.read1(65536), b"")
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (line for line in lines if line.strip())
    if rest.strip():
        yield rest


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
