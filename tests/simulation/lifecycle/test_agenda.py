"""What is to come, as data."""

from dralab.kernel.events import Events
from dralab.simulation.lifecycle.agenda import Agenda


def test_an_agenda_is_data_and_cancelled_entries_are_not_in_it():
    said = []
    agenda = Agenda(Events())
    agenda.methods["say"] = lambda whom, times: said.append((whom, times))
    agenda.schedule(5, 1, "say", "b", times=2)
    gone = agenda.schedule(5, 0, "say", "a", times=1)
    agenda.schedule(7, 0, "say", "c", times=3)
    agenda.cancel(gone)
    agenda.cancel(gone)
    assert [entry[:4] for entry in agenda.entries()] == [(5, 1, "say", "b"), (7, 0, "say", "c")]
    agenda.happen(5)
    assert said == [("b", 2)]
    assert [entry.whom for entry in agenda.entries()] == ["c"]
