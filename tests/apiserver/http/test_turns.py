"""Which of the requests that wait are in the next batch."""

from dralab.apiserver.access.fairness.flow_control import Flow
from dralab.apiserver.access.fairness.queues import PriorityLevel
from dralab.apiserver.access.users import User
from dralab.apiserver.http.connections.turns import Turns
from dralab.apiserver.http.messages import HttpRequest

LEVEL = PriorityLevel("work", per_flow=6)


def flow_of(request):
    return Flow(LEVEL, request.user.name)


def turns(*, batch=4, records=2):
    return Turns(flow_of, batch=batch, records=records)


def asked(user, path="/x", agent=""):
    headers = {"user-agent": agent} if agent else {}
    return HttpRequest(method="GET", path=path, user=User(name=user), headers=headers), path


def paths(taken):
    return [path for _, path in taken]


def test_what_one_batch_holds_is_taken_as_it_came():
    waiting = turns()
    for number in range(4):
        waiting.add_request(asked("jane", f"/{number}"))
    assert paths(waiting.take_batch()[0]) == ["/0", "/1", "/2", "/3"]
    assert not waiting


def test_users_take_turns_when_more_wait():
    waiting = turns()
    for number in range(6):
        waiting.add_request(asked("greedy", f"/{number}"))
    waiting.add_request(asked("jane", "/once"))
    taken, refused = waiting.take_batch()
    assert paths(taken) == ["/0", "/once", "/1", "/2"]
    assert not refused
    waiting.add_request(asked("joe", "/also"))
    assert paths(waiting.take_batch()[0]) == ["/also", "/3", "/4", "/5"]


def test_what_had_no_time_is_first_of_its_program_and_not_of_all():
    waiting = turns()
    for number in range(4):
        waiting.add_request(asked("greedy", f"/{number}"))
    taken, _ = waiting.take_batch()
    waiting.put_back(taken[1:])
    waiting.add_request(asked("jane", "/once"))
    assert sorted(request.path for request in waiting) == ["/1", "/2", "/3", "/once"]
    assert paths(waiting.take_batch()[0]) == ["/1", "/once", "/2", "/3"]


def test_too_much_of_one_user_is_refused_and_others_are_not():
    waiting = turns()
    for number in range(9):
        waiting.add_request(asked("greedy", f"/{number}"))
    waiting.add_request(asked("jane", "/once"))
    taken, refused = waiting.take_batch()
    assert paths(refused) == ["/6", "/7", "/8"]
    assert "/once" in paths(taken)


def test_events_wait_for_decisions_even_in_one_batch():
    waiting = turns()
    for number in range(3):
        waiting.add_request(asked("scheduler", f"/events-{number}"))
    waiting.add_request(asked("scheduler", "/bind"))
    assert paths(waiting.take_batch()[0]) == ["/bind", "/events-0", "/events-1"]
    assert paths(waiting.take_batch()[0]) == ["/events-2"]
