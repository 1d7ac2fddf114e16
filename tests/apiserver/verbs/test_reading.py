"""Lists and watches: revisions, pages, selectors."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver.verbs.asking import Asked
from dralab.api.kinds import Kinds
from dralab.api.status import ApiError
from dralab.apiserver.http.messages import HttpRequest, WatchStream
from dralab.apiserver.storage import Key, Stored
from dralab.apiserver.verbs import reading
from dralab.apiserver.verbs.reading import Continuation, is_indexed
from dralab.apiserver.verbs.state.options import ListOptions
from dralab.apiserver.verbs.state.selectors import parse_fields, selection

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = Kinds.standard().find("", "v1", "pods")


@pytest.fixture
def ask() -> Asked:
    return Asked()


def names(found):
    return [item["metadata"]["name"] for item in found["items"]]


def watching(ask, query):
    answer = ask.application.handle(HttpRequest(method="GET", path=MAPS, query=f"watch=1&{query}"))
    return answer.watching if isinstance(answer, WatchStream) else answer


@given(
    st.integers(1, 7),
    st.integers(0, 12),
    st.sets(st.sampled_from(["n1", "n1-x", "n2"]), min_size=1),
)
@settings(max_examples=20, deadline=None)
def test_pages_together_are_the_whole_list(limit, count, namespaces):
    ask = Asked()
    for namespace in sorted(namespaces):
        ask("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        for number in range(count):
            ask(
                "POST",
                f"/api/v1/namespaces/{namespace}/configmaps",
                {"metadata": {"name": f"m{number}"}},
            )
    _, whole = ask("GET", "/api/v1/configmaps")
    found, token = [], ""
    while True:
        _, page = ask("GET", f"/api/v1/configmaps?limit={limit}&continue={token}")
        assert len(page["items"]) <= limit
        found += page["items"]
        token = page["metadata"].get("continue", "")
        if not token:
            break
        assert page["metadata"]["remainingItemCount"] == len(whole["items"]) - len(found)
    assert found == whole["items"]


@given(st.integers(1, 2**62), st.sampled_from(["", "ns"]), st.text("abc-.", min_size=1))
def test_tokens_say_what_they_were_made_of(revision, namespace, name):
    token = reading.encode_token(Continuation(revision, namespace, name), "")
    again = reading.decode_token(token, "", namespaced=bool(namespace))
    assert again == Continuation(revision, namespace, name)


@pytest.mark.parametrize(
    "text", ["abc", "e30", "!!!", "bnVsbA", "W10", "eyJ2IjoieCJ9", "eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ"]
)
def test_broken_tokens_are_refused(ask, text):
    status, refused = ask("GET", f"{MAPS}?limit=1&continue={text}")
    assert (status, refused["reason"]) == (400, "BadRequest")


def test_a_list_can_show_the_past_until_it_is_compacted(ask):
    ask("POST", MAPS, {"metadata": {"name": "a"}})
    then = ask.store.revision
    ask("POST", MAPS, {"metadata": {"name": "b"}})
    exact = f"{MAPS}?resourceVersion={then}&resourceVersionMatch=Exact"
    assert names(ask("GET", exact)[1]) == ["a"]
    assert names(ask("GET", f"{MAPS}?resourceVersion={then}")[1]) == ["a", "b"], "at least as new"
    _, first = ask("GET", f"{MAPS}?limit=1")
    ask("POST", MAPS, {"metadata": {"name": "c"}})
    ask.store.compact(ask.store.revision)
    status, refused = ask("GET", exact)
    assert (status, refused["reason"]) == (410, "Expired")
    status, refused = ask("GET", f"{MAPS}?limit=1&continue={first['metadata']['continue']}")
    assert (status, refused["reason"]) == (410, "Expired")
    inconsistent = refused["metadata"]["continue"]
    assert names(ask("GET", f"{MAPS}?continue={inconsistent}")[1]) == ["b", "c"]


def test_the_future_is_not_listed(ask):
    answer = ask.full("GET", f"{MAPS}?resourceVersion=99999")
    assert (answer.status, dict(answer.headers)["Retry-After"]) == (504, "1")
    assert ask("GET", f"{MAPS}/a?resourceVersion=99999")[0] == 504


@pytest.mark.parametrize(
    ("query", "initial", "end"),
    [
        ("", 1, False),
        ("resourceVersion=0", 1, False),
        ("resourceVersion=2", 0, False),
        (
            "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
            1,
            True,
        ),
        ("sendInitialEvents=true&resourceVersionMatch=NotOlderThan", 1, False),
        ("sendInitialEvents=false&resourceVersionMatch=NotOlderThan", 0, False),
        ("fieldSelector=metadata.name%3Dother", 0, False),
    ],
)
def test_a_watch_begins_as_it_was_asked_to(ask, query, initial, end):
    ask("POST", MAPS, {"metadata": {"name": "a"}})
    found = watching(ask, query)
    assert (len(found.initial), found.initial_end) == (initial, end)


def test_a_watch_from_before_the_history_ends_with_an_error_event(ask):
    ask("POST", MAPS, {"metadata": {"name": "a"}})
    ask("POST", MAPS, {"metadata": {"name": "b"}})
    ask.store.compact(ask.store.revision)
    answer = watching(ask, "resourceVersion=2")
    assert answer.status == 200
    assert b'"type":"ERROR"' in answer.content
    assert b'"code":410' in answer.content


def stored(**parts):
    value = {"metadata": {"name": "p", "namespace": "default"}, **parts}
    return Stored(Key("pods", "default", "p"), value, 1, 1)


FIELDS = [
    ("spec.nodeName=n1", {"spec": {"nodeName": "n1"}}, True),
    ("spec.nodeName=", {"spec": {}}, True),
    ("spec.host=n1", {"spec": {"nodeName": "n1"}}, True),
    ("spec.hostNetwork=false", {"spec": {}}, True),
    ("spec.hostNetwork==true", {"spec": {"hostNetwork": True}}, True),
    ("status.phase!=Failed,status.phase!=Succeeded", {"status": {"phase": "Running"}}, True),
    ("status.phase!=Failed,status.phase!=Running", {"status": {"phase": "Running"}}, False),
    (
        "status.podIPs=1.1.1.1\\,2.2.2.2",
        {"status": {"podIPs": [{"ip": "1.1.1.1"}, {"ip": "2.2.2.2"}]}},
        True,
    ),
    ("metadata.name=p,metadata.namespace=default", {}, True),
    ("metadata.name!=p", {}, False),
]


@pytest.mark.parametrize(("selector", "parts", "wanted"), FIELDS)
def test_pods_are_chosen_by_their_fields(selector, parts, wanted):
    chosen = selection(PODS, "", selector)
    assert chosen.accepts(stored(**parts)) is wanted


def test_unknown_fields_are_refused(ask):
    with pytest.raises(ApiError, match=r"field label not supported: spec\.x"):
        selection(PODS, "", "spec.x=1")
    assert ask("GET", f"{MAPS}?fieldSelector=spec.x")[0] == 400


def test_escaped_commas_are_part_of_a_value():
    assert [term.value for term in parse_fields(r"a=x\,y,b=z\\")] == ["x,y", "z\\"]


def test_deletecollection_deletes_what_a_list_shows(ask):
    for name, labels in (("a", {"k": "1"}), ("b", {"k": "2"}), ("c", {"k": "1"})):
        ask("POST", MAPS, {"metadata": {"name": name, "labels": labels}})
    _, gone = ask("DELETE", f"{MAPS}?labelSelector=k%3D1")
    assert names(gone) == ["a", "c"]
    assert names(ask("GET", MAPS)[1]) == ["b"]


@pytest.mark.parametrize(
    ("labels", "fields", "indexed"),
    [
        ("", "", False),
        ("", "metadata.name=p", True),
        ("a=b", "metadata.name=p", True),
        ("", "spec.nodeName=n1", True),
        ("a=b", "spec.nodeName=n1", True),
        ("", "spec.nodeName=n1,status.phase=Running", True),
        ("", "spec.nodeName=", False),
        ("", "spec.nodeName!=n1", False),
        ("", "status.phase=Running", False),
        ("a=b", "", False),
    ],
)
def test_a_name_or_a_node_finds_pods_without_a_look_at_the_others(labels, fields, indexed):
    options = ListOptions(label_selector=labels, field_selector=fields)
    assert is_indexed(PODS, options) is indexed
