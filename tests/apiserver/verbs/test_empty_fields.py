"""An empty list counts until an object is stored."""

from dralab.api.fields import forbidden, invalid_value
from dralab.api.scalar_decoding import EmptyField
from dralab.apiserver.verbs.empty_fields import EmptyPlace, change_errors, located, restored


def test_what_was_empty_is_found_by_where_it_was():
    value = {"spec": {"items": [{"name": "a"}, {"name": "b"}]}}
    second = value["spec"]["items"][1]
    empties = [EmptyField(second, "list", [], False), EmptyField({}, "gone", [], False)]
    assert located(value, empties) == [EmptyPlace(("spec", "items", 1, "list"), [], False)]
    assert located(value, []) == ()


def test_what_was_empty_is_there_for_a_while():
    value = {"a": {"kept": 1}, "b": {"shown": None}}
    places = [EmptyPlace(("a", "list"), [], False), EmptyPlace(("b", "shown"), {}, True)]
    places.append(EmptyPlace(("c", 3, "list"), [], False))
    with restored(value, places, shown=True):
        assert value == {"a": {"kept": 1}, "b": {"shown": {}}}
    with restored(value, places):
        assert value == {"a": {"kept": 1, "list": []}, "b": {"shown": {}}}
    assert value == {"a": {"kept": 1}, "b": {"shown": None}}


def test_what_was_filled_in_meanwhile_stays():
    value = {}
    places = [EmptyPlace(("a",), [], False)]
    with restored(value, places):
        value["a"] = ["default"]
    assert value == {"a": ["default"]}
    with restored(value, places):
        assert value == {"a": ["default"]}


def test_an_empty_list_is_no_difference_of_its_own():
    spec = {}
    places = [EmptyPlace(("list",), [], False)]

    def problems():
        found = [invalid_value("spec", dict(spec), "is wrong")]
        return found + ([forbidden("spec.list", "is immutable")] if "list" in spec else [])

    found = change_errors(spec, places, problems)
    assert found == [invalid_value("spec", {"list": []}, "is wrong")]
    assert change_errors(spec, places, list) == []
    assert spec == {}
