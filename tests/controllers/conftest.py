import pytest

from workloads import RealLab


@pytest.fixture
def lab():
    return RealLab()
