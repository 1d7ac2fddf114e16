"""How JSON ends, as that of a kube-apiserver 1.36.2 does."""

import pytest

from dralab.apiserver.http.messages import HttpRequest
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@pytest.fixture(scope="module")
def server():
    found = ApiServer(MemoryStore())
    yield found
    found.close()


@pytest.mark.parametrize(
    ("path", "accept", "program", "person"),
    [
        ("/api", "*/*", b"]}\n", b"]\n}"),
        ("/apis/apps", "*/*", b"}}\n", b"  }\n}"),
        ("/apis", AGGREGATED, b"]}\n", b"]\n}"),
        ("/api/v1/namespaces", "*/*", b"]}\n", b"  ]\n}"),
        ("/api/v1/namespaces", TABLE, b"]}\n", b"  ]\n}"),
        ("/api/v1/namespaces/default", "*/*", b"}}\n", b"  }\n}"),
        ("/api/v1/namespaces/nope", "*/*", b'"code":404}\n', b'"code": 404\n}'),
        ("/version", "*/*", b'"\n}', b'"\n}'),
        ("/", "*/*", b"]\n}", b"]\n}"),
        ("/openapi/v2", "*/*", b"}", b"}"),
        ("/.well-known/openid-configuration", "*/*", b'"]}', b'"]}'),
    ],
)
def test_a_line_ends_for_programs_and_not_for_people(server, path, accept, program, person):
    for query, end in (("", program), ("pretty=1", person)):
        request = HttpRequest(method="GET", path=path, query=query, headers={"accept": accept})
        content = server.handle(request).content
        assert content.endswith(end), content[-20:]
