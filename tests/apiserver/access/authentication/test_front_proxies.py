"""Users whom a proxy names in headers."""

import pytest

from authorities import NOW, Authority, der
from dralab.api.status import ApiError
from dralab.apiserver.access.authentication.chain import Authentication
from dralab.apiserver.access.authentication.errors import UnusableSetting
from dralab.apiserver.access.authentication.settings import AuthenticationFlags, settings_of
from dralab.apiserver.http.messages import HttpRequest
from dralab.kernel.clock import SECOND, ManualClock

CLOCK = ManualClock(int(NOW.timestamp()) * SECOND)


@pytest.fixture(scope="module")
def users():
    return Authority("users")


@pytest.fixture(scope="module")
def proxies():
    return Authority("proxies")


@pytest.fixture
def flags(users, proxies, tmp_path):
    (tmp_path / "users.crt").write_bytes(users.pem)
    (tmp_path / "proxies.crt").write_bytes(proxies.pem)

    def flags(**changes):
        given = {
            "client_ca_file": tmp_path / "users.crt",
            "requestheader_client_ca_file": tmp_path / "proxies.crt",
            "requestheader_allowed_names": ["front"],
            "requestheader_username_headers": ["X-Remote-User"],
            "requestheader_uid_headers": ["X-Remote-Uid"],
            "requestheader_group_headers": ["X-Remote-Group"],
            "requestheader_extra_headers_prefix": ["X-Remote-Extra-"],
            **changes,
        }
        return settings_of(AuthenticationFlags(**given), CLOCK)

    return flags


def user(settings, certificate=b"", repeated=None, **headers):
    chain = Authentication(
        tokens=settings.tokens, certificates=settings.certificates, proxies=settings.proxies
    )
    headers = {name.replace("_", "-"): text for name, text in headers.items()}
    request = HttpRequest(
        method="GET", path="/", headers=headers, certificate=certificate, repeated=repeated
    )
    try:
        return chain.user_of(request)
    except ApiError as error:
        return error.code


def test_a_proxy_names_user_groups_and_more(flags, proxies):
    found = user(
        flags(),
        der(proxies.issue("front")[0]),
        repeated={"x-remote-group": ["a", "b"]},
        x_remote_user="jane",
        x_remote_uid="u-1",
        x_remote_group="a",
        x_remote_extra_Scope="view",
    )
    assert (found.name, found.uid) == ("jane", "u-1")
    assert found.groups == ("a", "b", "system:authenticated")


def test_nobody_else_is_believed(flags, users, proxies):
    front, other = der(proxies.issue("front")[0]), der(proxies.issue("other")[0])
    alice = der(users.issue("alice")[0])
    assert user(flags(), b"", x_remote_user="root") == 401
    assert user(flags(), other, x_remote_user="root") == 401
    assert user(flags(), front) == 401, "a proxy is nobody itself"
    assert user(flags(), alice, x_remote_user="root").name == "alice"
    assert user(flags(requestheader_allowed_names=[]), other, x_remote_user="x").name == "x"


def test_users_are_not_proxies(flags, users, proxies, tmp_path):
    (tmp_path / "both.crt").write_bytes(users.pem + proxies.pem)
    with pytest.raises(UnusableSetting, match="set --requestheader-allowed-names"):
        flags(requestheader_client_ca_file=tmp_path / "both.crt", requestheader_allowed_names=[])
    with pytest.raises(UnusableSetting, match="needs --requestheader-username-headers"):
        flags(requestheader_username_headers=[])
    with pytest.raises(UnusableSetting, match="needs --requestheader-client-ca-file"):
        flags(requestheader_client_ca_file=None)
