"""A selector language in a few lines, for tests that are not about CEL."""

import re

from dralab.allocation.problem import DeviceSelectorError


class SmallExpressions:
    """Conditions of the form `device.driver == "x"` and `device.attributes["d"].name == value`."""

    FORM = re.compile(
        r'device\.(driver|attributes\["(?P<domain>[^"]+)"\]\.(?P<name>\w+)) == (?P<value>.+)'
    )

    def __init__(self, text):
        self.text = text
        self.found = self.FORM.fullmatch(text)
        domain, name = (self.found["domain"], self.found["name"]) if self.found else ("", "")
        self.path = ("attributes", domain, name) if domain else ("driver",)
        self.reads = frozenset({self.path})

    def matches(self, device):
        if self.found is None:
            raise DeviceSelectorError(f"cannot read {self.text}", compiling=True)
        value = self.found["value"].strip('"')
        if self.path == ("driver",):
            return device.driver == value
        attribute = device.attributes.get(f"{self.path[1]}/{self.path[2]}")
        if attribute is None:
            raise DeviceSelectorError(f"no such key: {self.path[2]}", lacks_key=True)
        return str(attribute.values[0]) == value


class SmallEnvironment:
    def selector(self, text):
        return SmallExpressions(text)

    def derivation(self, text):
        raise NotImplementedError(text)
