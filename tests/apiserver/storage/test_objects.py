"""How many stored objects keep their mapping, and what a change tells."""

import pytest

from dralab.apiserver.storage import Change, Key, Stored
from dralab.apiserver.storage import objects as objects_module

KEY = Key("pods", "default", "a")


def stored(size: int) -> Stored:
    found = Stored(KEY, {"metadata": {}, "spec": ""}, 2, 2)
    rest = size - len(found.encoded)
    return Stored(KEY, {"metadata": {}, "spec": "x" * rest}, 2, 2)


@pytest.mark.parametrize(
    ("most", "most_bytes", "parsed"),
    [
        (3, 1_000, [True, True, True]),
        (2, 1_000, [False, True, True]),
        (3, 300, [True, True, True]),
        (3, 299, [False, True, True]),
        (3, 199, [False, False, True]),
    ],
)
def test_the_oldest_mappings_are_dropped_and_all_json_is_kept(
    monkeypatch: pytest.MonkeyPatch, most: int, most_bytes: int, parsed: list[bool]
) -> None:
    monkeypatch.setattr(objects_module, "WARM", most)
    monkeypatch.setattr(objects_module, "WARM_BYTES", most_bytes)
    warm = objects_module._Warm()
    items = [stored(100) for _ in range(3)]
    for item in items:
        warm.add(item)
    assert [item.parsed for item in items] == parsed
    assert warm.weight == 100 * sum(parsed)
    assert [len(item.encoded) for item in items] == [100] * 3


def test_an_end_is_shown_at_its_own_revision_or_as_it_was_told() -> None:
    before, told = stored(100), stored(101)
    left = Change(KEY, 7, before, None)
    assert left.departed.revision == 7
    assert left.departed.created == 2
    assert left.departed.value["metadata"]["resourceVersion"] == "7"
    assert left.departed is left.departed
    assert Change(KEY, 7, before, None, told).departed is told
    with pytest.raises(ValueError, match="ended nothing"):
        _ = Change(KEY, 7, None, before).departed
