"""Accept headers, read exactly; bodies in all their forms."""

import json

import pytest

from apiserver.verbs.asking import Asked
from dralab.apiserver.http.messages import HttpRequest
from dralab.apiserver.http.negotiation import discovery_form, form_of
from dralab.apiserver.http.responses import quoted
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore

MAPS = "/api/v1/namespaces/default/configmaps"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("", ("json", "")),
        ("*/*", ("json", "")),
        ("application/json", ("json", "")),
        ("application/yaml", ("yaml", "")),
        ("application/vnd.kubernetes.protobuf, */*", ("json", "")),
        ("application/vnd.kubernetes.protobuf,application/json", ("json", "")),
        (f"{TABLE},application/json", ("json", "Table")),
        ("application/json;as=Table;v=v9;g=meta.k8s.io,application/json", ("json", "")),
        ("application/json;as=Other;v=v1;g=meta.k8s.io, application/yaml", ("yaml", "")),
        (
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
            ("json", "PartialObjectMetadataList"),
        ),
        ("text/html;q=1, application/json;q=0.5", ("json", "")),
        ("application/json;q=0.1, application/yaml;q=0.9", ("yaml", "")),
        ("text/html", None),
        ("application/cbor", None),
    ],
)
def test_the_first_form_that_can_be_met_is_taken(accept, wanted):
    form = form_of(accept)
    assert (form and (form.encoding, form.as_)) == wanted


def test_there_are_no_tables_of_what_is_only_created():
    ask = Asked()
    spec = {"nonResourceAttributes": {"path": "/", "verb": "get"}}
    review = {"spec": spec}
    url = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    status, refused = ask("POST", url, review, accept=TABLE)
    assert status == 406
    assert refused["message"] == (
        "only the following media types are accepted: application/json, application/yaml, "
        "application/vnd.kubernetes.protobuf"
    )
    status, answer = ask("POST", url, review, accept=f"{TABLE},application/json")
    assert (status, answer["kind"]) == (201, "SelfSubjectAccessReview")
    token = "/api/v1/namespaces/default/serviceaccounts/default/token"
    assert ask("POST", token, {"spec": {}}, accept=TABLE)[0] == 406


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("application/vnd.kubernetes.protobuf, */*", ("protobuf", "")),
        ("application/json, application/vnd.kubernetes.protobuf", ("json", "")),
        ("application/vnd.kubernetes.protobuf;stream=watch", ("protobuf", "")),
        (f"application/vnd.kubernetes.protobuf;{TABLE[17:]}", None),
        (f"application/vnd.kubernetes.protobuf;{TABLE[17:]},application/json", ("json", "")),
    ],
)
def test_kinds_with_a_message_are_sent_as_protobuf_to_those_who_ask(accept, wanted):
    form = form_of(accept, protobuf=True)
    assert (form and (form.encoding, form.as_)) == wanted


def test_metadata_is_protobuf_for_every_kind():
    partial = "as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
    form = form_of(f"application/vnd.kubernetes.protobuf;{partial}")
    assert (form.encoding, form.as_) == ("protobuf", "PartialObjectMetadata")


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        (V2, "aggregated"),
        (f"{V2.replace('v2', 'v2beta1')},application/json", "json"),
        (f"{V2},application/json", "aggregated"),
        (V2.replace("v=v2", "v=v2beta1"), ""),
        ("application/json", "json"),
        ("", "json"),
    ],
)
def test_discovery_is_aggregated_for_those_who_ask_for_exactly_that(accept, wanted):
    assert discovery_form(accept) == wanted


def test_discovery_is_not_sent_again_to_those_who_have_it():
    ask = Asked()
    first = ask.full("GET", "/apis", accept=V2)
    tag = dict(first.headers)["ETag"]
    again = ask.full("GET", "/apis", accept=V2, if_none_match=tag)
    assert (again.status, again.content) == (304, b"")
    ask.resources.kinds.remove("policy", "v1", "poddisruptionbudgets")
    assert ask.full("GET", "/apis", accept=V2, if_none_match=tag).status == 200


def test_aggregated_discovery_says_of_each_kind_what_the_registry_says():
    ask = Asked()
    for url, core in (("/api", True), ("/apis", False)):
        found = json.loads(ask.full("GET", url, accept=V2).content)
        for group in found["items"]:
            for version in group["versions"]:
                name = group["metadata"].get("name", "")
                for resource in version["resources"]:
                    kind = ask.resources.kinds.find(name, version["version"], resource["resource"])
                    assert resource["responseKind"]["kind"] == kind.kind
                    assert resource["verbs"] == list(kind.verbs)
                    assert bool(name) is not core


BODIES = [
    ("application/json", b'{"metadata":{"name":"a"},"data":{"x":"1"}}'),
    ("", b'{"metadata":{"name":"a"},"data":{"x":"1"}}'),
    ("application/json; charset=utf-8", b'{"metadata":{"name":"a"},"data":{"x":"1"}}'),
    ("application/yaml", b"metadata: {name: a}\ndata: {x: '1'}\n"),
    ("application/yaml", b"metadata: &m {name: a}\ndata: {x: '1'}\n"),
]


@pytest.mark.parametrize(("kind", "body"), BODIES)
def test_bodies_come_in_json_and_yaml(kind, body):
    status, made = Asked()("POST", MAPS, body, content_type=kind)
    assert (status, made["data"]) == (201, {"x": "1"})


BOMB = b"a: &a [x, x, x, x, x, x, x, x, x]\n" + b"".join(
    b"%c: &%c [%s]\n" % (name, name, b", ".join([b"*%c" % (name - 1)] * 9))
    for name in range(ord("b"), ord("k"))
)


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        ("text/html", b"x", 415),
        ("application/json", b"", 400),
        ("application/json", b"[]", 400),
        ("application/json", b'"x"', 400),
        ("application/json", b"\xff\xfe", 400),
        ("application/json", b'{"metadata":[]}', 400),
        ("application/json", b'{"kind":1}', 400),
        ("application/json", b"{" * 5000, 400),
        ("application/json", b'{"a":' * 5000, 400),
        ("application/yaml", b"a: [", 400),
        ("application/yaml", b"a: !!python/object:os.system {}", 400),
        ("application/yaml", BOMB, 400),
        ("application/vnd.kubernetes.protobuf", b"k8s\0garbage", 400),
        ("application/json", b" " * (3 * 1024 * 1024 + 1), 413),
    ],
)
def test_bodies_that_make_no_sense_are_refused(kind, body, status):
    answer = Asked().full("POST", MAPS, body, content_type=kind)
    assert answer.status == status
    assert json.loads(answer.content)["kind"] == "Status"


def test_what_only_a_client_can_mend_is_said_in_a_warning():
    ask = Asked()
    body = b'{"metadata":{"name":"a"},"data":{"x":"1","x":"2"},"bogus":{"a":"\\u0022"}}'
    answer = ask.full("POST", MAPS, body)
    assert [value for name, value in answer.headers if name == "Warning"] == [
        '299 - "duplicate field \\"data.x\\""',
        '299 - "unknown field \\"bogus\\""',
    ]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/v1/nothing", 404),
        ("GET", "/api/v1/namespaces/default/pods/p/nothing", 404),
        ("GET", "/api/v1/pods/p", 404),
        ("GET", "/api/v1/namespaces//pods", 404),
        ("GET", "/api/v1/namespaces/default/nodes", 404),
        ("POST", "/api/v1/pods", 405),
        ("DELETE", "/api/v1/pods", 405),
        ("PUT", "/api/v1/namespaces", 405),
        ("OPTIONS", "/api/v1/namespaces", 405),
        ("POST", "/version", 405),
        ("GET", "/version/", 200),
        ("GET", "/healthz/ping", 200),
        ("GET", "/readyz/etcd", 200),
        ("GET", "/readyz/poststarthook/scheduling/bootstrap-system-priority-classes", 200),
        ("GET", "/readyz/poststarthook/rbac/bootstrap-roles", 404),  # not without RBAC
        ("GET", "/api/v1/namespaces/default/", 200),
        ("GET", "/api/v1/namespaces/def%61ult", 200),
        ("GET", "/openid/v1/jwks", 200),
        ("GET", "/.well-known/openid-configuration", 200),
    ],
)
def test_paths_lead_where_they_should(method, path, status):
    assert Asked().full(method, path).status == status


def test_a_warning_about_a_field_of_any_name_fits_into_a_header():
    assert quoted('unknown field "spec.Ⱦ\n"').encode("latin-1").decode() == (
        '"unknown field \\"spec.Ⱦ \\""'
    )


def test_an_error_ends_with_a_newline_as_clients_print_it():
    answer = ApiServer(MemoryStore()).handle(
        HttpRequest(method="GET", path="/api/v1/namespaces/default/pods/none")
    )
    assert answer.status == 404
    assert answer.content.endswith(b'"code":404}\n')
