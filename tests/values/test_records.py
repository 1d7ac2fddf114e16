"""Dataclasses that are compiled late, beside those of the standard library."""

import copy
import dataclasses
import inspect
import pickle
from dataclasses import FrozenInstanceError, field, fields, replace

import pytest

from dralab.values import records


def classes(dataclass):
    """Return classes made by one of the two decorators, each with the arguments of two objects."""

    @dataclass
    class Plain:
        x: int
        y: list[int] = field(default_factory=list)

    @dataclass(frozen=True, slots=True)
    class Frozen:
        x: int
        y: str = "y"
        hidden: int = field(default=3, repr=False, compare=False)

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Named(Frozen):
        more: tuple[int, ...] = ()
        made: int = field(init=False, default=7)
        half: int = field(init=False)

        def __post_init__(self):
            object.__setattr__(self, "half", self.x // 2)

    @dataclass(slots=True, eq=False)
    class ByIdentity:
        x: int

    @dataclass(frozen=True)
    class Loose:
        x: dict[str, int] = field(hash=False, default_factory=dict)
        last: int = field(kw_only=True)

        def __repr__(self):
            return "loose"

        def __hash__(self):
            return 5

    @dataclass(slots=True)
    class Empty:
        pass

    return [
        (Plain, ((1,), {}), ((1, [2]), {})),
        (Frozen, ((1,), {"hidden": 4}), ((2, "z"), {})),
        (Named, ((4,), {"more": (1,)}), ((4,), {})),
        (ByIdentity, ((1,), {}), ((1,), {})),
        (Loose, ((), {"last": 1}), (({"a": 1},), {"last": 1})),
        (Empty, ((), {}), ((), {})),
    ]


CASES = list(zip(classes(records.dataclass), classes(dataclasses.dataclass), strict=True))


def outcome(act):
    try:
        return act()
    except (TypeError, AttributeError) as error:
        return type(error), str(error)


def facts(case):
    cls, one, other = case
    first, second = cls(*one[0], **one[1]), cls(*other[0], **other[1])
    again = cls(*one[0], **one[1])
    name = fields(cls)[0].name if fields(cls) else "x"
    return {
        "repr": cls.__repr__ is not object.__repr__ and repr(first),
        "equal": [first == again, first == second, first == 1, first != again],
        "hash": outcome(lambda: cls.__eq__ is object.__eq__ or hash(first) == hash(again)),
        "hash value": cls.__eq__ is object.__eq__ or outcome(lambda: hash(second)),
        "values": dataclasses.asdict(first),
        "set": outcome(lambda: setattr(first, name, 9)),
        "deleted": outcome(lambda: delattr(second, name)),
        "match": cls.__match_args__,
        "slots": getattr(cls, "__slots__", None),
        "too few": outcome(lambda: cls(*range(9)))[0],
        "replaced": outcome(lambda: dataclasses.asdict(replace(again, x=9))),
        "copied": outcome(lambda: dataclasses.asdict(copy.deepcopy(again))),
        "state": outcome(lambda: again.__reduce_ex__(4)[2]),
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0][0].__name__)
def test_a_late_dataclass_is_like_a_standard_one(case):
    ours, standard = map(facts, case)
    assert ours == standard


def test_the_arguments_of_a_class_without_instances_are_known():
    for ours, standard in zip(
        classes(records.dataclass), classes(dataclasses.dataclass), strict=True
    ):
        taken, expected = (
            [(each.name, each.kind) for each in inspect.signature(cls).parameters.values()]
            for cls in (ours[0], standard[0])
        )
        assert taken == expected


@records.dataclass(frozen=True, slots=True)
class Point:
    x: int
    near: "Point | None" = None


def test_it_is_pickled_and_its_methods_are_compiled_once():
    point = Point(1, Point(2))
    assert pickle.loads(pickle.dumps(point)) == point  # noqa: S301 - our own
    compiled = Point.__init__
    assert Point(3) != point
    assert Point.__init__ is compiled
    assert compiled.__qualname__ == "Point.__init__"
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 2


def test_a_subclass_uses_the_methods_of_its_base():
    class Moved(Point):
        pass

    assert repr(Moved(1)).endswith("Moved(x=1, near=None)")
    assert Moved(1) == Moved(1)
    assert Moved(1) != Point(1)


@records.dataclass(frozen=True, slots=True)
class Counted:
    x: int
    y: str = "y"
    half: int = field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "half", self.x // 2)


def test_a_copy_has_what_was_replaced_and_everything_else_as_it_was():
    record = Counted(4)
    copied = records.copied(record, {"x": 9})
    assert (type(copied), copied.x, copied.y, copied.half) == (Counted, 9, "y", 2)
    assert record == Counted(4)
    assert hash(copied) == hash((9, "y", 2))
    with pytest.raises(FrozenInstanceError):
        copied.x = 1
    with pytest.raises(AttributeError, match="z"):
        records.copied(record, {"z": 1})
