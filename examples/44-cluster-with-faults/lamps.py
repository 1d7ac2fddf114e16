"""A custom driver; the same class also runs live."""

from dralab.drivers.driver import Driver


class Lamps(Driver):
    """Two lamps on a node; only the second one is bright."""

    name = "lamps.example.com"

    def devices(self):
        """Return the lamps."""
        return [{"name": f"lamp-{n}", "attributes": {"bright": {"bool": n == 1}}} for n in range(2)]
