"""Selectors in CEL: what their errors say of a device."""

import pytest

from dralab.allocation.problem import Device, DeviceSelectorError
from dralab.allocation.selectors import CelSelectorCompiler


@pytest.mark.parametrize(
    ("text", "lacks_key"),
    [
        ('device.attributes["example.com"].model == "a"', True),
        ('int(device.driver) == 1 || device.driver == "no such key: model"', False),
    ],
)
def test_an_error_says_whether_the_device_lacks_a_key(text, lacks_key):
    selector = CelSelectorCompiler().selector(text)
    for _ in range(2):  # the second answer is one that is remembered
        with pytest.raises(DeviceSelectorError) as raised:
            selector.matches(Device(name="a", driver="example.com"))
        assert (raised.value.lacks_key, raised.value.compiling) == (lacks_key, False)
