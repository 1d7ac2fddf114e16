"""What is read over a WebSocket where a plain answer would do, such as the log of a container.

Source: k8s.io/streaming `pkg/wsstream/stream.go`: each piece is one message, in binary or as
base64. Which answers are streams is decided where they are made.
"""

import base64
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Final

from dralab.apiserver.http.byte_feeds import Feed
from dralab.apiserver.http.messages import ByteStream, HttpResponse, Source, Upgrade

BINARY: Final = "binary.k8s.io"
BASE64: Final = "base64.binary.k8s.io"
TEXT: Final = "text/plain"


def read_socket(answer: object, offered: Sequence[str]) -> Upgrade | None:
    """Return an answer as a WebSocket that is only read; None if it can't be one.

    `offered` are the client's protocols; without any, messages are binary.
    """
    protocol = next((each for each in offered if each in (BINARY, BASE64)), "")
    if offered and not protocol:
        return None
    if isinstance(answer, ByteStream):
        source: Source = answer.source
    elif isinstance(answer, HttpResponse) and _is_text(answer):
        feed = Feed(limit=len(answer.content) + 1)
        if answer.content:
            feed.put(answer.content)
        feed.end()
        source = feed
    else:
        return None
    if protocol == BASE64:
        source = _InBase64(source)
    return Upgrade(source=source, receive=lambda _message: None, protocol=protocol)


def _is_text(answer: HttpResponse) -> bool:
    media = next((text for name, text in answer.headers if name.lower() == "content-type"), "")
    return answer.status == HTTPStatus.OK and media.startswith(TEXT)


class _InBase64:
    """A source whose pieces are spelled in base64."""

    def __init__(self, source: Source) -> None:
        self._source = source

    @property
    def done(self) -> bool:
        return self._source.done

    @property
    def cut(self) -> str | None:
        return self._source.cut

    def take_items(self) -> Sequence[bytes]:
        return [base64.b64encode(each) for each in self._source.take_items()]

    def notify(self, ready: Callable[[], None]) -> None:
        self._source.notify(ready)

    def close(self) -> None:
        self._source.close()
