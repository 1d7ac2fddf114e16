"""Users that an authenticating proxy in front of the server names in headers.

Source: k8s.io/apiserver `authentication/request/headerrequest`.
"""

from collections.abc import Sequence
from urllib.parse import unquote

from dralab.apiserver.access.authentication.certificates import ClientCertificates
from dralab.apiserver.access.authentication.errors import Rejected
from dralab.apiserver.access.authentication.heads import Head, values
from dralab.apiserver.access.users import User
from dralab.values.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontProxies:
    """Trusts the headers of proxies with a certificate of `certificates`.

    `names` are the common names of the proxies; empty for all that the authorities have signed.
    Names of headers are in lower case.
    """

    certificates: ClientCertificates
    names: Sequence[str] = ()
    user_headers: Sequence[str] = ()
    uid_headers: Sequence[str] = ()
    group_headers: Sequence[str] = ()
    extra_prefixes: Sequence[str] = ()

    def user_of(self, head: Head) -> User | None:
        """Return the user that a proxy names; None if there is no proxy. Rejected."""
        name = _first(head, self.user_headers)
        if not name or not head.certificate:
            return None
        proxy = self.certificates.user_of(head.certificate)
        if self.names and (proxy is None or proxy.name not in self.names):
            raise Rejected("x509: subject is not in the allowed names of front proxies")
        extra: dict[str, tuple[str, ...]] = {}
        for header in head.headers:
            for prefix in self.extra_prefixes:
                if header.startswith(prefix):
                    key = unquote(header.removeprefix(prefix)).lower()
                    extra[key] = (*extra.get(key, ()), *values(head, header))
        groups = [value for header in self.group_headers for value in values(head, header)]
        return User(
            name=name,
            groups=tuple(groups),
            uid=_first(head, self.uid_headers),
            **({"extra": extra} if extra else {}),
        )


def _first(head: Head, names: Sequence[str]) -> str:
    return next((found for name in names if (found := head.headers.get(name, ""))), "")
