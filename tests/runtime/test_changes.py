"""Changes that `amend` writes."""

import pytest

from dralab.objects.metadata import finalizers_of
from dralab.runtime.client import add_finalizer, drop_finalizer


@pytest.mark.parametrize(
    ("change", "before", "after"),
    [
        (add_finalizer, None, ["x"]),
        (add_finalizer, [], ["x"]),
        (add_finalizer, ["a"], ["a", "x"]),
        (add_finalizer, ["x", "a"], ["x", "a"]),
        (drop_finalizer, None, []),
        (drop_finalizer, ["a"], ["a"]),
        (drop_finalizer, ["a", "x", "b"], ["a", "b"]),
        (drop_finalizer, ["x", "x"], []),
    ],
)
def test_a_finalizer_is_put_on_once_and_taken_off_whole(change, before, after):
    obj = {"metadata": {"name": "o", "finalizers": before}}
    assert change(obj, "x") == (after != (before or []))
    assert list(finalizers_of(obj)) == after
