"""What is said of a driver that does not start."""

from types import SimpleNamespace

from dralab.drivercheck.bench import Bench


class Ends:
    """A driver that ends while somebody asks whether it runs."""

    said = ""

    @property
    def running(self):
        self.said = "starting\nno GPU here"
        return False

    def output(self):
        return self.said


def test_the_last_output_of_a_driver_is_what_it_said_until_its_end():
    bench = SimpleNamespace(surroundings=None, instance=Ends())
    assert Bench.start_problem(bench) == "the driver ends at its start; last output: no GPU here"
