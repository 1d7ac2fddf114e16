"""Which generations a server serves, told by a kind that only one of them has."""

import pytest

from dralab.api.status import ApiError
from dralab.prototypes.generations import GENERATIONS
from dralab.runtime.generations import resources_of, served


class ServerOf:
    """Lists the collections of some plurals, all of them empty."""

    def __init__(self, *plurals):
        self.plurals = plurals

    def list(self, resource, *_, **__):
        if resource.plural not in self.plurals:
            raise ApiError("Forbidden", "no")


@pytest.mark.parametrize(
    ("plurals", "names"),
    [
        (["resourceslices"], ["v1"]),
        (["devicepools", "resourceclasses"], ["classic", "k8srm"]),
        (["resourcepools", "devicepools"], ["evolution", "k8srm"]),
        (["resourceslices", "devicepools", "resourcepools"], ["evolution", "v1", "k8srm"]),
        (["resourceclaims"], []),
    ],
)
def test_what_is_always_served_comes_last(plurals, names):
    assert served(ServerOf(*plurals)) == names


@pytest.mark.parametrize("name", GENERATIONS)
def test_each_generation_has_a_kind_by_which_it_is_known(name):
    found = {other: resources_of(known).values() for other, known in GENERATIONS.items()}
    [sign] = [each for each in found[name] if each.plural == GENERATIONS[name].sign]
    assert [other for other in GENERATIONS if sign in found[other]] == [name]
