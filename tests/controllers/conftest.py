import pytest

from labs import Lab


@pytest.fixture
def lab():
    return Lab()
