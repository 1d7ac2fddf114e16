"""No request holds the loop for more than a quarter of a second, whatever it says."""

import asyncio
import gzip
import time

import orjson
import pytest

import authorities
from dralab.api import structural
from dralab.apiserver.http.connections import asgi
from dralab.apiserver.http.connections.asgi import AsgiApp
from dralab.apiserver.http.messages import LOOP, HttpRequest, TakesLong
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import Key, MemoryStore
from watchdog import watched

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
COUNTED = "/api/v1/namespaces/kube-public/configmaps"
QUOTAS = "/api/v1/namespaces/kube-public/resourcequotas"
WIDGETS = "/apis/x.io/v1/namespaces/default/widgets"
PODS = "/api/v1/namespaces/default/pods"
JSON, YAML = "application/json", "application/yaml"
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
PROTOBUF = "application/vnd.kubernetes.protobuf"


def request(method, path, body=b"", media=JSON, query=""):
    content = body if isinstance(body, bytes) else orjson.dumps(body)
    return HttpRequest(
        method=method, path=path, query=query, headers={"content-type": media}, body=content
    )


def config_map(name="c", *, data=None, **metadata):
    found = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}
    return found | ({"data": data} if data else {})


def pod(**container):
    containers = [{"name": "c", "image": "i", **container}]
    metadata = {"name": "p", "finalizers": [f"x.io/f{at}" for at in range(5000)]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": containers},
    }


def entries(count, **more):
    return [
        {
            "manager": f"m{at}", "operation": "Update", "apiVersion": "v1",
            "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {f"f:k{at}": {}}}, **more,
        }
        for at in range(count)
    ]  # fmt: skip


def definition(schema=None, **version):
    """Return the definition of widgets."""
    shape = schema or {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    versions = [
        {
            "name": "v1",
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": shape},
            **version,
        }
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.x.io"},
        "spec": {
            "group": "x.io",
            "names": {"plural": "widgets", "kind": "Widget"},
            "scope": "Namespaced",
            "versions": versions,
        },
    }


def widget(name="w", **fields):
    return {"apiVersion": "x.io/v1", "kind": "Widget", "metadata": {"name": name}, **fields}


def duplicates(depth, count):
    head = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"x":'
    inner = b"{" + b",".join([b'"b":1'] * count) + b"}"
    return head + b'{"a":' * depth + inner + b"}" * depth + b"}"


def many(part):
    """Return an object with a list of as many parts as a body has room for."""
    head = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"x":['
    return head + b",".join([part] * (3_000_000 // (len(part) + 1))) + b"]}"


def run(*requests):
    """Return the answers of a server, asked over its loop, which has turns all the while."""
    store = MemoryStore()

    async def ask():
        server = ApiServer(store)
        server.handle(request("POST", CONFIG_MAPS, config_map("warm")))
        edge = AsgiApp(server)
        edge.loop = asyncio.get_running_loop()
        try:
            return [await edge.submit(each) for each in requests]
        finally:
            edge.close()

    with watched(store):
        return asyncio.run(ask())


ENV = [{"name": f"e{at}", "value": "x"} for at in range(5000)]
ATTACKS = {
    "nested repeated keys": [request("POST", CONFIG_MAPS, duplicates(150, 300_000))],
    "a large YAML": [
        request("POST", CONFIG_MAPS, b"a: 1\nx: [" + b"a," * 150_000 + b"]", YAML),
    ],
    "many owners of fields": [
        request("POST", CONFIG_MAPS, config_map("m", managedFields=entries(15_000))),
        request("PATCH", CONFIG_MAPS + "/m", config_map("m", data={"k": "v"}), APPLY, "fieldManager=x"),
    ],
    "merge keys": [
        request("POST", CONFIG_MAPS, b"a0: &a0 {k: v}\n" + b"".join(
            b"a%d: &a%d {<<: [*a%d, *a%d, *a%d, *a%d]}\n" % (n, n, n - 1, n - 1, n - 1, n - 1)
            for n in range(1, 24)), YAML),
    ],
    "an apply of many fields": [
        request("PATCH", CONFIG_MAPS + "/a", config_map("a", data={f"k{n}": "v" for n in range(60_000)}),
                APPLY, "fieldManager=x"),
    ],
    "orders in a strategic merge": [
        request("POST", PODS, pod(env=ENV)),
        request("PATCH", PODS + "/p", {
            "metadata": {"$deleteFromPrimitiveList/finalizers": [f"x.io/g{n}" for n in range(5000)]},
        }, STRATEGIC),
        request("PATCH", PODS + "/p", {"spec": {"containers": [{"name": "c", "env": [
            {"name": f"z{n}", "$patch": "delete"} for n in range(3000)]}]}}, STRATEGIC),
    ],
    "copies in a JSON patch": [
        request("PATCH", CONFIG_MAPS + "/warm", [
            {"op": "add", "path": "/data", "value": {"a": "b"}},
            *({"op": "copy", "from": "/data", "path": f"/data/x{n}"} for n in range(30)),
        ], JSON_PATCH),
    ],
    "empty maps": [request("POST", CONFIG_MAPS, many(b"{}"))],
    "lists in lists": [request("POST", CONFIG_MAPS, many(b"[[[[[[[[]]]]]]]]"))],
    "objects with keys twice": [request("POST", CONFIG_MAPS, many(b'{"a":1,"a":2}'))],
    "texts full of commas": [request("POST", CONFIG_MAPS, many(b'"' + b"," * 50 + b'"'))],
    "a deep JSON": [request("POST", CONFIG_MAPS, b'{"a":' * 400_000)],
    "a huge number": [request("POST", CONFIG_MAPS, b'{"a":' + b"9" * 1_000_000 + b"}")],
    "terms of a field selector": [
        request("GET", CONFIG_MAPS, query="fieldSelector=" + ",".join(
            f"metadata.name!=v{n}" for n in range(5_000))),
    ],
    "many protobuf fields": [
        request("POST", CONFIG_MAPS, b"k8s\0" + b"\x0a\x0f\x0a\x02v1\x12\x09ConfigMap" + b"\x12\x80\x89\x7a"
                + b"\x08\x01" * 1_000_000, PROTOBUF),
    ],
}  # fmt: skip


@pytest.mark.parametrize("requests", ATTACKS.values(), ids=ATTACKS)
def test_the_loop_is_never_held(requests):
    assert all(answer.status < 500 for answer in run(*requests))


@pytest.mark.parametrize(
    "body",
    [many(b"{}"), many(b"1"), many(b'{"a":1,"a":2}'), b" " + many(b"[]"), many(b"{}")[:-2]],
    ids=["objects", "numbers", "keys twice", "after a space", "no JSON"],
)
@pytest.mark.parametrize("media", [JSON, MERGE, APPLY])
def test_a_body_of_very_many_values_is_refused_before_it_is_read(body, media):
    server = ApiServer(MemoryStore())
    server.handle(request("POST", CONFIG_MAPS, config_map("warm")))
    if media == JSON:
        answer = server.handle(request("POST", CONFIG_MAPS, body))
    else:
        path, query = f"{CONFIG_MAPS}/warm", "fieldManager=m"
        answer = server.handle(request("PATCH", path, body, media, query))
    if media == APPLY and body[:1] == b" ":
        assert b"contains more than 160000 values" in answer.content
    else:
        assert answer.status == 413
        assert b"the body has more than 160000 objects, lists and items" in answer.content


def test_a_large_text_is_not_taken_for_many_values():
    table = '1,2,[3],{4}\n"\\"' * 60_000
    answer = ApiServer(MemoryStore()).handle(
        request("POST", CONFIG_MAPS, config_map(data={"table": table}))
    )
    assert answer.status == 201
    assert orjson.loads(answer.content)["data"]["table"] == table


def test_the_watchdog_barks():
    async def hold():
        until = time.thread_time() + 0.02
        while time.thread_time() < until:
            pass

    with watched() as watchdog:
        asyncio.run(hold())
    with pytest.raises(AssertionError, match=r"held the loop for 0\.0"):
        watchdog.check(0.01)


def test_the_loop_goes_on_while_a_large_body_is_read():
    server = ApiServer(MemoryStore())

    async def ask():
        edge = AsgiApp(server)
        edge.loop = asyncio.get_running_loop()
        large = edge.submit(ATTACKS["a large YAML"][0])
        assert not edge.idle
        small = await edge.submit(request("GET", CONFIG_MAPS))
        before = large.done()
        answers = (small.status, before, (await large).status)
        edge.close()
        return answers

    assert asyncio.run(ask()) == (200, False, 422)


def test_a_zipped_body_is_not_unpacked():
    bomb = gzip.compress(orjson.dumps(config_map(data={"k": "v" * 10_000_000})))
    asked = HttpRequest(
        method="POST",
        path=CONFIG_MAPS,
        headers={"content-type": JSON, "content-encoding": "gzip"},
        body=bomb,
    )
    assert ApiServer(MemoryStore()).handle(asked).status == 400


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("9" * 5000, 400),
        ("%C2%B2", 400),
        ("99999999999999999999", 400),
        ("9223372036854775807", 200),
    ],
)
def test_a_grace_that_no_number_can_hold_is_refused(query, status):
    server = ApiServer(MemoryStore())
    server.handle(request("POST", CONFIG_MAPS, config_map()))
    asked = request("DELETE", CONFIG_MAPS + "/c", query=f"gracePeriodSeconds={query}")
    assert server.handle(asked).status == status


@pytest.mark.parametrize(
    ("seconds", "why"),
    [
        (2**62, "may not specify a duration larger than 2^32 seconds"),
        (2**32 + 1, "may not specify a duration larger than 2^32 seconds"),
        (5, "may not specify a duration less than 10 minutes"),
        (2**32, ""),
    ],
)
def test_a_token_lasts_from_ten_minutes_to_a_lifetime(seconds, why):
    server = ApiServer(MemoryStore())
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}}
    server.handle(request("POST", accounts, account))
    body = {"spec": {"expirationSeconds": seconds}}
    answer = server.handle(request("POST", accounts + "/a/token", body))
    assert answer.status == (422 if why else 201)
    assert why in answer.content.decode()


@pytest.mark.parametrize("status", ["x", [], 5, {"conditions": "x"}, {"conditions": ["x"]}])
def test_an_approval_whose_status_is_of_the_wrong_type_is_refused(status):
    server = ApiServer(MemoryStore())
    path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    asked = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": "c"},
        "spec": {
            "request": authorities.request(),
            "signerName": "a.b/c",
            "usages": ["client auth"],
        },
    }
    assert server.handle(request("POST", path, asked)).status == 201
    answer = server.handle(request("PUT", path + "/c/approval", {**asked, "status": status}))
    assert answer.status == 400
    assert b"cannot unmarshal" in answer.content


def test_more_updaters_than_fit_become_one_also_where_there_is_one_already():
    server = ApiServer(MemoryStore())
    late = {"manager": "ancient-changes", "time": "2026-01-02T00:00:00Z"}
    owners = [*entries(12), *entries(1, **late)]
    made = server.handle(request("POST", CONFIG_MAPS, config_map("c", managedFields=owners)))
    assert made.status == 201
    found = orjson.loads(made.content)["metadata"]["managedFields"]
    assert len(found) == 10
    assert sum(entry["manager"] == "ancient-changes" for entry in found) == 1


def test_a_large_apply_is_tried_again_where_another_was_faster():
    server = ApiServer(MemoryStore())
    server.handle(request("POST", CONFIG_MAPS, config_map()))
    tries = []

    class Slow:
        name = "Slow"

        def admit(self, review):
            """Let somebody else write while the object is looked at."""
            tries.append(review.name)
            if len(tries) <= 2:
                with_label = {"metadata": {"labels": {"seen": str(len(tries))}}}
                patch = request("PATCH", CONFIG_MAPS + "/c", with_label, MERGE)
                admission.remove(self)
                assert server.handle(patch).status == 200
                admission.append(self)

    admission = server.resources.context.admission
    admission.append(Slow())
    asked = request(
        "PATCH", CONFIG_MAPS + "/c", config_map(data={"k": "v"}), APPLY, "fieldManager=x"
    )
    answer = server.handle_apart(asked)
    assert (answer.status, len(tries)) == (200, 3)
    found = orjson.loads(answer.content)
    assert found["metadata"]["labels"] == {"seen": "2"}
    assert found["data"] == {"k": "v"}


def test_a_write_whose_object_never_rests_asks_the_client_to_come_back():
    server = ApiServer(MemoryStore())
    server.handle(request("POST", CONFIG_MAPS, config_map()))
    context = server.resources.context

    class Restless:
        name = "Restless"

        def admit(self, review):
            """Change the object whenever somebody else does."""
            key = Key("configmaps", "default", "c")
            context.store.update(key, dict(context.store.get(key).value))

    context.admission.append(Restless())
    asked = request("PATCH", CONFIG_MAPS + "/c", {"data": {"k": "v"}}, MERGE)
    answer = server.handle_apart(asked)
    assert answer.status == 500
    assert orjson.loads(answer.content)["reason"] == "ServerTimeout"
    assert ("Retry-After", "1") in answer.headers


def test_an_object_is_not_stored_once_its_kind_has_gone():
    server = ApiServer(MemoryStore())
    assert server.handle(request("POST", DEFINITIONS, definition())).status == 201

    class Late:
        name = "Late"

        def admit(self, review):
            """Take the kind away while its object is looked at."""
            admission.remove(self)
            gone = request("DELETE", DEFINITIONS + "/widgets.x.io")
            assert server.handle(gone).status == 200

    admission = server.resources.context.admission
    admission.append(Late())
    assert server.handle_apart(request("POST", WIDGETS, widget())).status == 404
    assert server.store.count("x.io/widgets") == 0


CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
CLAIM = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "c"},
    "spec": {"devices": {"requests": [{"name": "r", "exactly": {
        "deviceClassName": "x",
        "selectors": [{"cel": {"expression": "1+" * 1500 + "1 == 1"}}],
    }}]}},
}  # fmt: skip
LONG = {
    "a patch of a large object": ("PATCH", CONFIG_MAPS + "/large", {"data": {"k": "v"}}, MERGE, ""),
    "a replacement of a large object": ("PUT", CONFIG_MAPS + "/large", config_map("large"), JSON, ""),
    "many objects by label": ("GET", CONFIG_MAPS, b"", JSON, "labelSelector=a%3Db"),
    "many objects by field": ("GET", CONFIG_MAPS, b"", JSON, "fieldSelector=metadata.name!%3Dx"),
    "a watch of many objects by label": ("GET", CONFIG_MAPS, b"", JSON, "watch=1&labelSelector=a%3Db"),
    "the deletion of many objects": ("DELETE", CONFIG_MAPS, b"", JSON, ""),
    "many terms": ("GET", WIDGETS, b"", JSON, "labelSelector=" + "%2C".join(["!a"] * 20_000)),
    "the objects of a definition": ("DELETE", f"{DEFINITIONS}/widgets.x.io", b"", JSON, ""),
    "a change of their definition": ("PUT", f"{DEFINITIONS}/widgets.x.io", b"{}", JSON, ""),
    "YAML in braces": ("POST", CONFIG_MAPS, b"{a: [" + b"a," * 10_000 + b"]}", YAML, ""),
    "YAML to apply": ("PATCH", CONFIG_MAPS + "/x", b"{a: [" + b"a," * 10_000 + b"]}", APPLY, "fieldManager=x"),
    "repeated keys to apply": (
        "PATCH", CONFIG_MAPS + "/x", b'{"a":1' + b',"a":1' * 10_000 + b"}", APPLY, "fieldManager=x"),
    "alternatives": ("POST", WIDGETS, widget(chosen=["x"] * 2000), JSON, ""),
    "defaults": ("POST", WIDGETS, widget(filled=[{}] * 3000), JSON, ""),
    "a rule of loops": ("POST", WIDGETS, widget(ruled=["x"] * 1000), JSON, ""),
    "a long expression": ("POST", CLAIMS, CLAIM, JSON, ""),
    "the pages of all kinds": ("GET", "/openapi/v2", b"", JSON, ""),
    "what a quota counts": ("POST", COUNTED, config_map("x"), JSON, ""),
}  # fmt: skip


SCHEMA = {
    "type": "object",
    "properties": {
        "chosen": {"type": "array", "items": {"type": "string", "anyOf": [
            {"pattern": f"^{n}$"} for n in range(50)]}},
        "filled": {"type": "array", "items": {"type": "object", "properties": {
            f"p{n}": {"type": "string", "default": "x"} for n in range(400)}}},
        "ruled": {
            "type": "array",
            "maxItems": 1000,
            "items": {"type": "string", "maxLength": 1},
            "x-kubernetes-validations": [{"rule": "self.all(a, self.exists(b, a == b))"}],
        },
    },
}  # fmt: skip
QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "q"},
    "spec": {"hard": {"count/configmaps": "1k"}},
}


@pytest.fixture(scope="module")
def filled():
    server = ApiServer(MemoryStore())
    assert server.handle(request("POST", DEFINITIONS, definition(SCHEMA))).status == 201
    for at in range(300):
        assert server.handle(request("POST", WIDGETS, widget(f"w{at}"))).status == 201
        server.handle(request("POST", COUNTED, config_map(f"c{at}")))
    assert server.handle(request("POST", QUOTAS, QUOTA)).status == 201
    server.handle(request("POST", CONFIG_MAPS, config_map("large", data={"k": "v" * 200_000})))
    for at in range(600):
        server.handle(request("POST", CONFIG_MAPS, config_map(f"c{at}")))
    return server


@pytest.mark.parametrize(("method", "path", "body", "media", "query"), LONG.values(), ids=LONG)
def test_what_takes_long_has_not_begun(filled, method, path, body, media, query):
    asked = request(method, path, body, media, query)
    asked.lane = LOOP
    before = filled.store.revision
    with pytest.raises(TakesLong):
        filled.handle(asked)
    assert filled.store.revision == before


LOOPS = [{"rule": "self.all(a, self.all(b, a + b != 0))"}]
SCHEMAS = {
    "a loop in a loop over few items": (
        {
            "type": "array",
            "maxItems": 300,
            "items": {"type": "integer"},
            "x-kubernetes-validations": LOOPS,
        },
        [1] * 300,
    ),
    "a pattern of many steps": ({"type": "string", "pattern": "(a?){1000}a{1000}"}, "a" * 2000),
}


@pytest.mark.parametrize(("schema", "value"), SCHEMAS.values(), ids=SCHEMAS)
def test_what_a_definition_makes_slow_has_not_begun(schema, value):
    server = ApiServer(MemoryStore())
    shape = {"type": "object", "properties": {"x": schema}}
    assert server.handle(request("POST", DEFINITIONS, definition(shape))).status == 201
    asked = request("POST", WIDGETS, widget(x=value))
    asked.lane = LOOP
    with pytest.raises(TakesLong):
        server.handle(asked)
    asked = request("POST", WIDGETS, widget(x=value[:1]))
    asked.lane = LOOP
    assert server.handle(asked).status in {201, 422}


@pytest.mark.parametrize(
    "form", ["application/yaml", "application/json;as=Table;g=meta.k8s.io;v=v1"]
)
@pytest.mark.parametrize("path", [CONFIG_MAPS, CONFIG_MAPS + "/large"])
def test_a_large_answer_in_another_form_takes_long(filled, form, path):
    asked = request("GET", path)
    asked.headers = {"accept": form}
    assert filled.handle(asked).status == 200
    asked.lane = LOOP
    with pytest.raises(TakesLong):
        filled.handle(asked)


def test_what_is_small_does_not_take_long(filled):
    for path, query in [
        (CONFIG_MAPS, ""),
        (CONFIG_MAPS + "/large", ""),
        (CONFIG_MAPS, "fieldSelector=metadata.name%3Dc1"),
        (CONFIG_MAPS, "watch=1&resourceVersion=1&labelSelector=a%3Db"),
        (PODS, "labelSelector=a%3Db"),
        ("/openapi/v3/apis/x.io/v1", ""),
    ]:
        asked = request("GET", path, query=query)
        asked.lane = LOOP
        filled.handle(asked)


def test_what_takes_long_is_answered_all_the_same(filled):
    async def ask():
        edge = AsgiApp(filled)
        edge.loop = asyncio.get_running_loop()
        answer = await edge.submit(request("GET", CONFIG_MAPS, query="labelSelector=!x"))
        edge.close()
        return answer

    answer = asyncio.run(ask())
    assert len(orjson.loads(answer.content)["items"]) >= 600


def test_a_batch_that_takes_long_lets_the_loop_have_turns(monkeypatch):
    for limit in ("HELD", "LONGEST_HELD"):
        monkeypatch.setattr(asgi, limit, 0.0)  # each takes longer than that
    server = ApiServer(MemoryStore())
    turns = []

    async def ask():
        edge = AsgiApp(server)
        edge.loop = asyncio.get_running_loop()

        async def count():
            while True:
                turns.append(server.store.revision)
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        names = [f"c{at}" for at in range(10)]
        asked = [edge.submit(request("POST", CONFIG_MAPS, config_map(name))) for name in names]
        answers = await asyncio.gather(*asked)
        counting.cancel()
        edge.close()
        return answers

    answers = asyncio.run(ask())
    assert [answer.status for answer in answers] == [201] * 10
    revisions = [int(orjson.loads(each.content)["metadata"]["resourceVersion"]) for each in answers]
    assert revisions == sorted(revisions)
    assert len(set(turns)) >= 10  # one was stored between two turns


def test_the_objects_of_a_definition_go_in_steps():
    store = MemoryStore()
    server = ApiServer(store)
    server.handle(request("POST", DEFINITIONS, definition()))
    for at in range(600):
        server.handle(request("POST", WIDGETS, widget(f"w{at}")))
    server.handle(request("PATCH", WIDGETS + "/w7", {"metadata": {"finalizers": ["a.b/c"]}}, MERGE))
    batches = []
    store.subscribe(lambda changes: batches.append(len(changes)))
    gone = server.handle_apart(request("DELETE", DEFINITIONS + "/widgets.x.io"))
    assert gone.status == 200
    assert max(batches) < 300
    assert store.count("x.io/widgets") == 1
    assert server.handle(request("GET", DEFINITIONS + "/widgets.x.io")).status == 200
    server.handle(request("PATCH", WIDGETS + "/w7", {"metadata": {"finalizers": None}}, MERGE))
    assert server.handle(request("GET", DEFINITIONS + "/widgets.x.io")).status == 404


def test_an_object_that_would_be_checked_for_minutes_is_refused(filled):
    refused = filled.handle(request("POST", WIDGETS, widget("a", chosen=["x"] * 600_000)))
    assert refused.status == 413
    assert (
        b"would take too long to be checked against the schema of widgets.x.io" in refused.content
    )


def test_defaults_do_not_make_a_large_object_of_a_small_one(filled, monkeypatch):
    monkeypatch.setattr(structural, "MAX_DEFAULTS", 20_000)
    refused = filled.handle(request("POST", WIDGETS, widget("a", filled=[{}] * 60)))
    assert refused.status == 413
    assert b"the defaults of its schema add more than" in refused.content
    made = filled.handle(request("POST", WIDGETS, widget("a", filled=[{}] * 30)))
    assert made.status == 201
