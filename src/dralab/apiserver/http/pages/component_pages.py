"""The debugging pages of a server: `/statusz` and `/flagz`, as text.

Source: k8s.io/component-base `zpages/statusz`, `zpages/flagz`. Upstream takes another delimiter
each time, so that no program relies on it; here it is always the same.
"""

import platform
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from dralab.apiserver.http.messages import HttpRequest, HttpResponse
from dralab.kernel.clock import SECOND, Clock, rfc3339

WARNING: Final = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility "
    "guarantees and is for debugging purposes only."
)
TEXT: Final = (("Content-Type", "text/plain; charset=utf-8"),)
NOT_ACCEPTABLE: Final = b"media type not acceptable, must be: text/plain\n"
# Paths that are of no use to somebody who looks for a fault.
PLAIN: Final = frozenset({"/api", "/apis", "/openid", "/openapi", "/.well-known"})
MEDIA: Final = frozenset({"text/plain", "text/*", "*/*", "*/plain"})


class ComponentPages:
    """The two pages; `flags` are the options with which the server was started."""

    def __init__(self, clock: Clock, version: str, emulated: str) -> None:
        self._clock, self._version, self._emulated = clock, version, emulated
        self._started = clock.now()
        self.flags: Mapping[str, str] = {}

    def answer(self, request: HttpRequest, name: str, paths: Iterable[str]) -> HttpResponse:
        """Answer `/statusz` or `/flagz`; `paths` are those that the server has."""
        if name == "statusz":
            return _page(request, name, self._about(paths))
        flags = sorted(self.flags.items())
        return _page(request, "flags", (f"{flag}={value}" for flag, value in flags))

    def _about(self, paths: Iterable[str]) -> Iterator[str]:
        up = (self._clock.now() - self._started) // SECOND
        yield f"Started: {rfc3339(self._started)}"
        yield f"Up: {up // 3600} hr {up // 60 % 60:02d} min {up % 60:02d} sec"
        yield f"Python version: {platform.python_version()}"
        yield f"Binary version: {self._version}"
        yield f"Emulation version: {self._emulated}"
        folders = {f"/{path.split('/')[1]}" for path in paths}
        yield f"Paths: {' '.join(sorted(folders - PLAIN))}"


def _page(request: HttpRequest, title: str, lines: Iterable[str]) -> HttpResponse:
    if not any(map(_is_text, request.headers.get("accept", "*/*").split(","))):
        return HttpResponse(status=406, headers=TEXT, body=NOT_ACCEPTABLE)
    text = "\n".join(["", f"kube-apiserver {title}", WARNING, "", *lines, ""])
    return HttpResponse(headers=TEXT, body=text.encode())


def _is_text(accepted: str) -> bool:
    media, *parameters = (part.strip().lower() for part in accepted.split(";"))
    return media in MEDIA and all(
        part.startswith("q=") or part == "charset=utf-8" for part in parameters
    )
