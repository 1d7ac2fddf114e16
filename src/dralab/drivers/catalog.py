"""The built-in drivers by name, and their DeviceClasses."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from dralab.drivers.driver import Driver
from dralab.drivers.fake.cpu import FakeCpus
from dralab.drivers.fake.demo import DRIVER, FakeDevices
from dralab.drivers.fake.gpu import FakeGpus
from dralab.drivers.fake.nic import FakeNics
from dralab.values.json_types import JsonDict

DRIVERS: Final[Mapping[str, Callable[[str], Driver]]] = {
    "fake": FakeDevices,
    "gpu": FakeGpus,
    "nic": FakeNics,
    "cpu": FakeCpus,
}


def device_class(driver: str, *, name: str = "", extended: str = "") -> JsonDict:
    """Return a class of all devices of a driver; `extended` is the extended resource's name."""
    spec: JsonDict = {"selectors": [{"cel": {"expression": f"device.driver == '{driver}'"}}]}
    if extended:
        spec["extendedResourceName"] = extended
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name or driver},
        "spec": spec,
    }


def classes(driver: Driver) -> Sequence[JsonDict]:
    """Return the classes that come with a driver."""
    if driver.name == DRIVER:
        return [device_class(DRIVER, name="fake.3-shake.com")]
    return [device_class(driver.name)]
