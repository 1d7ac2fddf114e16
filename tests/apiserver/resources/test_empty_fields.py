"""An empty list counts until an object is stored."""

from dralab.api.fields import forbidden, invalid_value
from dralab.api.scalar_decoding import EmptyField
from dralab.apiserver.resources.empty_fields import change_errors, restored


def test_what_was_empty_is_there_for_a_while():
    holder, other = {"kept": 1}, {"shown": None}
    empties = [EmptyField(holder, "a", [], False), EmptyField(other, "shown", {}, True)]
    with restored(empties, shown=True):
        assert (holder, other) == ({"kept": 1}, {"shown": {}})
    with restored(empties):
        assert (holder, other) == ({"kept": 1, "a": []}, {"shown": {}})
    assert (holder, other) == ({"kept": 1}, {"shown": None})


def test_what_was_filled_in_meanwhile_stays():
    holder = {}
    with restored([EmptyField(holder, "a", [], False)]):
        holder["a"] = ["default"]
    assert holder == {"a": ["default"]}
    with restored([EmptyField(holder, "a", [], False)]):
        assert holder == {"a": ["default"]}


def test_an_empty_list_is_no_difference_of_its_own():
    spec = {}
    empties = [EmptyField(spec, "list", [], False)]

    def problems():
        found = [invalid_value("spec", dict(spec), "is wrong")]
        return found + ([forbidden("spec.list", "is immutable")] if "list" in spec else [])

    assert change_errors(empties, problems) == [invalid_value("spec", {"list": []}, "is wrong")]
    assert change_errors(empties, list) == []
    assert spec == {}
