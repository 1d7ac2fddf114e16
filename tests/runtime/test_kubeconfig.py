import base64

import pytest
import yaml

from dralab.kernel.http_client import HttpReply
from dralab.runtime.kubeconfig import KubeconfigError, read
from dralab.runtime.remote import RemoteClient
from dralab.runtime.resources import NODES

GOOD = {
    "current-context": "lab",
    "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "me"}}],
    "clusters": [{"name": "lab", "cluster": {"server": "http://127.0.0.1:55441/"}}],
    "users": [{"name": "me", "user": {"token": "t0"}}],
}


def written(tmp_path, document):
    path = tmp_path / "config"
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return path


def test_server_and_token_come_from_the_current_context(tmp_path):
    access = read(written(tmp_path, GOOD))
    assert (access.server, access.token) == ("http://127.0.0.1:55441", "t0")


def test_files_are_found_beside_the_kubeconfig_and_data_win(tmp_path):
    (tmp_path / "ca.pem").write_text("CA")
    data = base64.b64encode(b"KEY").decode()
    document = GOOD | {
        "clusters": [
            {
                "name": "lab",
                "cluster": {"server": "https://x", "certificate-authority": "ca.pem"},
            }
        ],
        "users": [{"name": "me", "user": {"client-key-data": data, "client-key": "none"}}],
    }
    access = read(written(tmp_path, document))
    assert (access.ca, access.key) == ("CA", "KEY")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("- 1", "expected a mapping"),
        ("a: [", "is not YAML"),
        ({}, "current-context is missing"),
        (GOOD | {"current-context": "x"}, "contexts: no entry 'x'; known: lab"),
        (GOOD | {"clusters": []}, "clusters: no entry 'lab'; known: none"),
        (
            GOOD | {"clusters": [{"name": "lab", "cluster": {"server": "127.0.0.1"}}]},
            "is not a URL that starts with",
        ),
        (
            GOOD | {"users": [{"name": "me", "user": {"client-key-data": "?"}}]},
            "client-key-data: not base64",
        ),
        (
            GOOD | {"users": [{"name": "me", "user": {"exec": {}}}]},
            "credentials from a helper program",
        ),
        (
            GOOD | {"users": [{"name": "me", "user": {"token": "t0", "as": "root"}}]},
            r"users\[me\]: as is not supported",
        ),
        (
            GOOD
            | {
                "clusters": [
                    {"name": "lab", "cluster": {"server": "http://x", "proxy-url": "http://y"}}
                ]
            },
            r"clusters\[lab\]: proxy-url is not supported",
        ),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_explained(tmp_path, document, message):
    path = written(tmp_path, document)
    with pytest.raises(KubeconfigError, match=message) as caught:
        read(path)
    assert str(path) in str(caught.value)


def test_a_token_file_wins_over_a_token(tmp_path):
    (tmp_path / "token").write_text("from the file\n")
    user = {"name": "me", "user": {"token": "t0", "tokenFile": "token"}}
    assert read(written(tmp_path, GOOD | {"users": [user]})).token == "from the file"


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(KubeconfigError, match=r"absent: cannot be read: No such file"):
        read(tmp_path / "absent")


def test_a_token_file_is_read_again_for_it_is_replaced(tmp_path):
    (tmp_path / "token").write_text("first\n")
    user = {"name": "me", "user": {"tokenFile": "token"}}
    access = read(written(tmp_path, GOOD | {"users": [user]}))
    assert access.current_token() == "first"
    (tmp_path / "token").write_text("second\n")
    assert access.current_token() == "second"
    (tmp_path / "token").unlink()
    assert access.current_token() == "first"


def test_a_client_sends_the_token_that_is_in_the_file_now(tmp_path, monkeypatch):
    (tmp_path / "token").write_text("first")
    user = {"name": "me", "user": {"tokenFile": "token"}}
    client = RemoteClient(read(written(tmp_path, GOOD | {"users": [user]})))
    sent = []

    def ask(method, url, headers, body):
        sent.append(dict(headers)["Authorization"])
        return HttpReply(200, b'{"items": []}')

    monkeypatch.setattr(client._connections, "ask", ask)
    client.list(NODES)
    (tmp_path / "token").write_text("second")
    client.list(NODES)
    assert sent == ["Bearer first", "Bearer second"]
