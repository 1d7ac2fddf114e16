"""The parts of a request that authentication reads: headers and client certificate."""

from collections.abc import Mapping, Sequence
from typing import Protocol


class Head(Protocol):
    """The head of a request; `http.messages.HttpRequest` is one.

    Names of headers are in lower case. `repeated` are all values of those that came more than
    once; `certificate` (DER) is the client's, which TLS has verified.
    """

    @property
    def headers(self) -> Mapping[str, str]:
        """The first value of each header."""
        ...

    @property
    def repeated(self) -> Mapping[str, Sequence[str]] | None:
        """All values of headers that came more than once."""
        ...

    @property
    def certificate(self) -> bytes:
        """The client's certificate; empty without one."""
        ...


def values(head: Head, name: str) -> Sequence[str]:
    """Return all values of a header, in their order."""
    if head.repeated and name in head.repeated:
        return head.repeated[name]
    return (head.headers[name],) if name in head.headers else ()
