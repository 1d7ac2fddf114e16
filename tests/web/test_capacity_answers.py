"""What the page is told of changes: who starts, who moves, and which questions are refused."""

import orjson
import pytest

from builders import device, pool, worker
from dralab.api.status import ApiError
from web.pages import cluster, desk


def test_what_if_tells_who_starts():
    found = orjson.loads(desk().what_if({"changes": [{"add": "n1", "count": 1}]}))
    assert found["nodes"] == {"before": 2, "after": 3, "added": ["new-1-n1"], "removed": []}
    assert [(each["name"], each["fate"]) for each in found["pods"]] == [("waits", "starts")]


def asks(number):
    return {"help": number, "of": {"kind": "pod", "namespace": "ml", "name": "waits"}}


def test_each_help_can_be_tried_and_then_the_pod_starts():
    asked = desk()
    told = orjson.loads(asked.explanation("pod", "ml", "waits"))
    texts = [told["helps"][at]["text"] for at in told["whatIf"]]
    assert texts == [
        "wait until ml/runs ends",
        "ask for 1 device",
        "uncordon n2",
        "add a node like n1",
    ]
    for number in told["whatIf"]:
        found = orjson.loads(asked.what_if({"changes": [asks(number)]}))
        (fate,) = [
            (each["fate"], each["after"]) for each in found["pods"] if each["name"] == "waits"
        ]
        assert fate[0] == "starts", texts[number]


def test_what_if_tells_the_devices_that_a_pod_gets():
    found = orjson.loads(desk().what_if({"changes": [{"uncordon": "n2"}]}))
    (pod_,) = found["pods"]
    assert (pod_["after"], pod_["devices"]) == ("n2", ["n2/half-0", "n2/half-1"])


def test_a_pod_is_moved_to_another_node():
    objects = [*cluster(), worker("n3"), *pool("n3", device("d0"), node="n3")]
    found = orjson.loads(desk(objects).what_if({"changes": [{"move": "ml/runs", "to": "n3"}]}))
    assert {each["name"]: (each["fate"], each["after"]) for each in found["pods"]} == {
        "runs": ("moves", "n3"),
        "waits": ("starts", "n1"),
    }


def test_a_pod_that_does_not_fit_where_it_is_moved_waits_and_says_why():
    found = orjson.loads(desk().what_if({"changes": [{"move": "ml/runs", "to": "n2"}]}))
    runs = next(each for each in found["pods"] if each["name"] == "runs")
    assert (runs["fate"], runs["after"]) == ("is displaced", None)
    assert runs["why"]


def test_a_pod_that_waits_can_be_moved_too():
    objects = [*cluster(), worker("n3"), *pool("n3", device("d0"), device("d1"), node="n3")]
    objects += [worker("n4"), *pool("n4", device("d0"), device("d1"), node="n4")]
    found = orjson.loads(desk(objects).what_if({"changes": [{"move": "ml/waits", "to": "n4"}]}))
    assert [(each["fate"], each["after"]) for each in found["pods"]] == [("starts anyway", "n4")]


def test_moves_make_room():
    # One device is free on each of two nodes, and the pod wants two on one node.
    objects = [*cluster(), worker("n3"), *pool("n3", device("d0"), node="n3")]
    found = orjson.loads(desk(objects).moves({"pod": "ml/waits"}))
    (clearing,) = found["clearings"]
    assert clearing["node"] == "n1"
    assert [(each["pod"], each["from"], each["to"]) for each in clearing["moves"]] == [
        ("ml/runs", "n1", "n3")
    ]
    assert any("ml" in line for line in found["commands"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (None, "a list of 1 to 100"),
        ([], "a list of 1 to 100"),
        ([{"remove": "n1"}] * 101, "a list of 1 to 100"),
        (["n1"], r"changes\[0\]: expected one of add, remove, cordon, uncordon, move"),
        ([{"move": "ml/runs"}], r"changes\[0\].to: None is not a name"),
        ([{"move": "ml/none", "to": "n1"}], "no pod 'ml/none'"),
        ([{"help": 0}], r"changes\[0\].of: expected kind, namespace, name"),
        ([asks(9)], r"changes\[0\].help: 9 is not one of 4 helps"),
        ([asks(True)], r"changes\[0\].help: True is not one of"),
        ([{"remove": 7}], r"changes\[0\].remove: 7 is not a name"),
        (
            [{"add": "n1", "count": 100_000}],
            r"changes\[0\].count: 100000 is not a number from 1 to 1000",
        ),
        ([{"add": "n1", "count": True}], r"changes\[0\].count: True"),
        ([{"cordon": "none"}], "none"),
        ([{"add": "n1", "count": 501}] * 2, "1002 new nodes are too many for the page"),
        ([{"add": "a100", "count": 1000}], "new devices are too many for the page"),
        ([{"add": "h100", "count": 60}, {"add": "a100", "count": 60}], "new devices are too many"),
    ],
)
def test_a_wrong_question_is_refused(changes, message):
    with pytest.raises(ApiError, match=message) as refused:
        desk().what_if({"changes": changes})
    assert refused.value.code == 400


@pytest.mark.parametrize(
    "question", [{"most": 0}, {"most": 1000}, {"most": "3"}, {"pod": "ml/none"}, {"pod": "ml/runs"}]
)
def test_a_wrong_question_about_moves_is_refused(question):
    with pytest.raises(ApiError) as refused:
        desk().moves(question)
    assert refused.value.code == 400
