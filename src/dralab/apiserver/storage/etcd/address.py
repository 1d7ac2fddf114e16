"""The address of an etcd, and how to reach it: `--store etcd://…`."""

import ssl
from dataclasses import fields
from typing import Self
from urllib.parse import parse_qsl, urlsplit

from dralab.files.reading import read
from dralab.values.records import dataclass

SCHEME = "etcd"
PREFIX = "/registry"  # kube-apiserver --etcd-prefix


class AddressError(ValueError):
    """The text is not the address of an etcd; `str` says why, and gives a correct one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdAddress:
    """The members of one etcd (`host:port`), the prefix of the keys, and the files for TLS.

    TLS is used where `cafile` is given: it names the authority that signed the members'
    certificates. `certfile` and `keyfile` are the client's own. The names are those of
    kube-apiserver's `--etcd-…` flags.

    >>> EtcdAddress.read("etcd://a:2379,b:2379?prefix=/lab").endpoints
    ('a:2379', 'b:2379')
    """

    endpoints: tuple[str, ...]
    prefix: str = PREFIX
    cafile: str = ""
    certfile: str = ""
    keyfile: str = ""

    def __post_init__(self) -> None:
        if not self.prefix.startswith("/") or self.prefix.endswith("/") or "//" in self.prefix:
            raise AddressError(
                f"the prefix {self.prefix!r} is not usable: one such as {PREFIX} begins with a "
                "slash and does not end with one"
            )
        if bool(self.certfile) != bool(self.keyfile):
            raise AddressError("a client certificate needs both certfile and keyfile")
        if self.certfile and not self.cafile:
            raise AddressError("a client certificate needs TLS: give the cafile too")

    @classmethod
    def read(cls, text: str, **given: str) -> Self:
        """Return the address in a URL; `given` are parameters that it does not have itself.

        AddressError.
        """
        example = f"expected {SCHEME}://HOST:2379[,HOST:2379…][?prefix=…&cafile=…]"
        try:
            url = urlsplit(text)
            query = dict(
                parse_qsl(url.query, keep_blank_values=True, strict_parsing=bool(url.query))
            )
        except ValueError as error:
            raise AddressError(f"{text!r} is not an etcd address: {error}") from error
        if url.scheme != SCHEME or not url.netloc or url.path.strip("/") or url.fragment:
            raise AddressError(f"{text!r} is not an etcd address: {example}")
        if "@" in url.netloc:
            raise AddressError(
                "etcd's user names and passwords are not supported: use certificates"
            )
        endpoints = tuple(_endpoint(part, text) for part in url.netloc.split(","))
        known = {field.name for field in fields(cls)} - {"endpoints"}
        for name, value in query.items():
            if name not in known:
                raise AddressError(
                    f"{text!r}: unknown parameter {name!r}; known: {', '.join(sorted(known))}"
                )
            if given.get(name, value) != value:
                raise AddressError(f"{name} is given twice, as {value!r} and {given[name]!r}")
        return cls(endpoints=endpoints, **{**query, **given})

    @property
    def secure(self) -> bool:
        """Whether the members are reached over TLS."""
        return bool(self.cafile)

    def file(self, name: str) -> bytes | None:
        """Return the content of one of the files; None if it is not given. AddressError."""
        path = getattr(self, name)
        if not path:
            return None
        try:
            return read(path)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise AddressError(f"the {name} of etcd, {path}, cannot be read: {why}") from error

    def context(self) -> ssl.SSLContext | None:
        """Return how members are reached over TLS; None: without. AddressError.

        The files must have certificates, and the key of the client's.
        """
        if not self.secure:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.set_alpn_protocols(["h2"])
        authority = (self.file("cafile") or b"").decode("latin-1")
        try:
            context.load_verify_locations(cadata=authority)
        except (ssl.SSLError, ValueError) as error:
            raise AddressError(
                f"the cafile of etcd, {self.cafile}, is not a certificate in PEM"
            ) from error
        if self.file("certfile") and self.file("keyfile"):
            try:
                context.load_cert_chain(self.certfile, self.keyfile, password=lambda: b"")
            except ssl.SSLError as error:
                raise AddressError(
                    f"the keyfile of etcd, {self.keyfile}, is not the key of the certificate in "
                    f"the certfile, {self.certfile}, both in PEM"
                ) from error
        return context

    def __str__(self) -> str:
        return f"{SCHEME}://{','.join(self.endpoints)}"


def _endpoint(part: str, text: str) -> str:
    host, colon, port = part.rpartition(":")
    if not colon or part.endswith("]"):
        host, port = part, "2379"
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise AddressError(f"{text!r}: {part!r} is not a HOST:PORT")
    return f"{host}:{port}"
