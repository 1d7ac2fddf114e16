"""Values that are there twice are found without comparing each with each."""

import pytest

from dralab.api.core.services import service_address_errors
from dralab.api.fields import repeated
from dralab.api.resource.validation.binding import binding_errors

MANY = 2_000


class Counted(str):
    """A text that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other):
        Counted.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_the_places_of_values_that_were_there_before():
    assert repeated(["a", "b", "a", "c", "b", "a"]) == {2, 4, 5}
    assert repeated([]) == frozenset()


LONG_LISTS = {
    "families of a service": lambda values: service_address_errors({"ipFamilies": values}),
    "binding conditions of a device": lambda values: binding_errors(
        {"bindingConditions": values, "bindingFailureConditions": values[: MANY // 2]}, "spec"
    ),
}


@pytest.mark.parametrize("errors_of", LONG_LISTS.values(), ids=LONG_LISTS)
def test_each_value_of_a_long_list_is_compared_a_few_times(errors_of):
    values = [Counted(f"x{number}") for number in range(MANY)]
    values[-1] = Counted("x0")
    Counted.compared = 0
    found = [error for error in errors_of(values) if error.reason == "FieldValueDuplicate"]
    assert [error.field.rpartition("[")[2] for error in found] == [f"{MANY - 1}]"]
    assert Counted.compared < 20 * MANY
