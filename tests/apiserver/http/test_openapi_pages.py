"""How OpenAPI documents are served: hashes, tags, compression, and what kubectl falls back to."""

import gzip

import orjson
import pytest

from dralab.apiserver.http.messages import HttpRequest
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore


@pytest.fixture(scope="module")
def server():
    found = ApiServer(MemoryStore())
    yield found
    found.close()


def asked(server, path, **headers):
    path, _, query = path.partition("?")
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return server.handle(HttpRequest(method="GET", path=path, query=query, headers=headers))


def test_the_index_leads_to_documents_that_may_be_kept_forever(server):
    index = orjson.loads(asked(server, "/openapi/v3").content)
    for place in ("api/v1", "apis/resource.k8s.io/v1"):
        found = asked(server, index["paths"][place]["serverRelativeURL"])
        assert found.status == 200
        assert ("Cache-Control", "public, immutable") in found.headers
        assert orjson.loads(found.content)["openapi"] == "3.0.0"


def test_an_old_hash_leads_to_the_new_document(server):
    found = asked(server, "/openapi/v3/api/v1?hash=OLD")
    assert found.status == 301
    (location,) = [value for name, value in found.headers if name == "Location"]
    assert asked(server, location).status == 200


def test_a_document_that_a_client_has_is_not_sent_again(server):
    found = asked(server, "/openapi/v3/apis/apps/v1")
    (tag,) = [value for name, value in found.headers if name == "ETag"]
    again = asked(server, "/openapi/v3/apis/apps/v1", if_none_match=tag)
    assert (again.status, again.content) == (304, b"")


def test_a_document_is_sent_compressed_where_that_is_understood(server):
    plain = asked(server, "/openapi/v3/apis/apps/v1").content
    packed = asked(server, "/openapi/v3/apis/apps/v1", accept_encoding="gzip")
    assert ("Content-Encoding", "gzip") in packed.headers
    assert gzip.decompress(packed.content) == plain
    assert len(packed.content) < len(plain) / 3


def test_a_compressed_document_is_not_indented_for_a_browser(server):
    headers = {"accept_encoding": "gzip", "user_agent": "Mozilla/5.0"}
    packed = asked(server, "/openapi/v3/apis/apps/v1", **headers)
    assert packed.status == 200
    assert orjson.loads(gzip.decompress(packed.content))["openapi"] == "3.0.0"


def test_the_older_document_is_protobuf_for_go_clients(server):
    accept = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
    found = asked(server, "/openapi/v2", accept=accept)
    assert found.status == 200
    assert found.content.startswith(b"\x0a\x032.0\x12")
    assert b"io.k8s.api.apps.v1.Deployment" in found.content
    assert orjson.loads(asked(server, "/openapi/v2").content)["swagger"] == "2.0"


@pytest.mark.parametrize("path", ["/openapi/v3/apis/none/v1", "/openapi/v4", "/openapi"])
def test_there_is_no_other_document(server, path):
    assert asked(server, path).status == 404


def test_a_document_is_protobuf_for_those_who_accept_nothing_else(server):
    wanted = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
    found = asked(server, "/openapi/v3/apis/apps/v1", accept=wanted)
    assert (found.status, dict(found.headers)["Content-Type"]) == (200, wanted)
    assert found.content.startswith(b"\x0a\x053.0.0")
    again = asked(server, "/openapi/v3/apis/apps/v1", accept=wanted)
    assert again.content == found.content
    either = asked(server, "/openapi/v3/apis/apps/v1", accept=f"{wanted}, */*")
    assert dict(either.headers)["Content-Type"] == "application/json"
