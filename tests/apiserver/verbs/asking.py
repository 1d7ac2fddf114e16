"""A server without sockets, and how to ask it."""

import json
from typing import Any

from dralab.apiserver.http.application import Application
from dralab.apiserver.http.messages import HttpRequest, HttpResponse
from dralab.apiserver.storage import MemoryStore, Store
from dralab.apiserver.verbs.assembly import new_resources
from dralab.kernel.clock import ManualClock
from dralab.kernel.randomness import Randomness

START = 1_700_000_000_000_000_000
MERGE = "application/merge-patch+json"


class Asked:
    """An application under a clock that stands still unless it is moved."""

    def __init__(self, store: Store | None = None, **options: Any) -> None:
        self.clock = ManualClock(START)
        self.store = store or MemoryStore()
        resources = new_resources(self.store, self.clock, Randomness(1), **options)
        self.application = Application(resources)
        self.resources = resources

    def full(self, method: str, url: str, body: Any = None, **headers: str) -> HttpResponse:
        """Return the whole answer."""
        path, _, query = url.partition("?")
        data = (
            body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        )
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = self.application.handle(
            HttpRequest(method=method, path=path, query=query, headers=named, body=data)
        )
        assert isinstance(answer, HttpResponse)
        return answer

    def __call__(
        self, method: str, url: str, body: Any = None, **headers: str
    ) -> tuple[int, dict[str, Any]]:
        """Return status and object."""
        answer = self.full(method, url, body, **headers)
        return answer.status, json.loads(answer.content)

    def merge(self, url: str, body: Any) -> tuple[int, dict[str, Any]]:
        """Send a merge patch."""
        return self("PATCH", url, body, content_type=MERGE)
