"""Static tokens: those given by a program, and the operator's file.

Source of the file's form: https://kubernetes.io/docs/reference/access-authn-authz/authentication,
k8s.io/apiserver `authentication/token/tokenfile`.
"""

import hashlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from dralab.apiserver.access.authentication.chain import Known, authenticated
from dralab.apiserver.access.authentication.errors import UnusableSetting
from dralab.apiserver.access.users import User
from dralab.files.reading import read
from dralab.values.remembering import remembered

FLAG: Final = "--token-auth-file"


class TokenTable:
    """A table of tokens; it keeps only their digests, so that lookups leak no timing."""

    def __init__(self, users: Mapping[str, User]) -> None:
        self._known = {
            _digest(token): Known(user=authenticated(user)) for token, user in users.items()
        }

    def known(self, token: str) -> Known | None:
        """Return the owner of a token."""
        return self._known.get(_digest(token))


def read_token_file(path: Path) -> dict[str, User]:
    """Return the users of a file with lines `token,name,uid,"group,group"`. UnusableSetting."""
    import csv  # only servers with such a file need it

    try:
        lines = io.StringIO(read(path).decode(), newline="")
        rows = [
            (number, [cell.strip() for cell in row])
            for number, row in enumerate(csv.reader(lines, strict=True), start=1)
            if row
        ]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        why = (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)
        raise UnusableSetting(FLAG, f"cannot read {path}: {why}") from error
    found: dict[str, User] = {}
    for number, row in rows:
        place = f"{path}, line {number}"
        if len(row) < 3:
            raise UnusableSetting(
                FLAG,
                f"{place}: expected at least 3 columns (token, user name, user uid), found "
                f"{len(row)}",
            )
        token, name, uid = row[:3]
        if not token or not name:
            raise UnusableSetting(FLAG, f"{place}: the token and the user name must not be empty")
        if token in found:
            raise UnusableSetting(FLAG, f"{place}: the same token as in another line, for {name}")
        groups = [group.strip() for group in row[3].split(",")] if len(row) > 3 else []
        found[token] = User(name=name, uid=uid, groups=tuple(group for group in groups if group))
    return found


@remembered(256, longest=2048)
def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()
