import pytest

from offices import Office


@pytest.fixture
def office():
    return Office()
