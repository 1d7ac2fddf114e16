"""The first configuration of admission makes its plugins: once, however many are written at once."""

import json
import sys
import threading
from contextlib import suppress

import pytest

from admissions import GROUP, MAPS, ask, config_map
from dralab.apiserver.http.messages import HttpRequest
from dralab.apiserver.made_once import made_once
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore
from dralab.kernel.clock import ManualClock
from dralab.kernel.randomness import Randomness

ROUNDS, WRITERS = 10, 8


@pytest.fixture
def tiny_switch_interval():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def in_threads(count, run):
    """Call `run` with each number at the same time; return what it returned."""
    start, found = threading.Barrier(count), [None] * count

    def call(number):
        start.wait()
        found[number] = run(number)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_a_part_is_made_once_even_if_two_threads_need_it_first():
    both = threading.Barrier(2)

    class Server:
        made = 0

        @made_once
        def plugins(self):
            self.made += 1
            with suppress(threading.BrokenBarrierError):
                both.wait(timeout=0.2)  # for another thread that makes it, too
            return [self.made]

    server = Server()
    first, second = in_threads(2, lambda _: server.plugins)
    assert first is second
    assert server.made == 1


def test_a_part_that_could_not_be_made_is_made_by_the_next_who_needs_it():
    class Server:
        tries = 0

        @made_once
        def key(self):
            self.tries += 1
            if self.tries == 1:
                raise OSError("no such file")
            return "key"

    server = Server()
    with pytest.raises(OSError, match="no such file"):
        _ = server.key
    assert server.key == "key"


@pytest.mark.parametrize("sort", ["validating", "mutating"])
def test_a_deleted_policy_does_nothing_though_another_was_written_first_with_it(sort):
    check_deletions(new_server(), sort, 1)  # imports what it needs
    server = new_server()
    context, both, written = server.resources.context, threading.Barrier(2), threading.Event()
    add_plugins = context.dynamic.add_plugins

    def add(*plugins):
        with suppress(threading.BrokenBarrierError):
            if both.wait(timeout=0.2):
                written.wait(timeout=2)  # what the other thread writes
        add_plugins(*plugins)

    context.dynamic.add_plugins = add
    hub = f"admissionregistration.k8s.io/{sort}admissionpolicybindings"
    context.rules.observe(hub, lambda *_: written.set())
    check_deletions(server, sort, 2)


@pytest.mark.thorough
@pytest.mark.usefixtures("tiny_switch_interval")
@pytest.mark.parametrize("sort", ["validating", "mutating"])
def test_a_deleted_policy_does_nothing_however_the_first_writers_take_turns(sort):
    for _ in range(ROUNDS):
        check_deletions(new_server(), sort, WRITERS)


def check_deletions(server, sort, count):
    """Write the first policies at once, delete them, and see that they have no effect."""
    policies = f"{GROUP}/{sort}admissionpolicies"
    bindings = f"{GROUP}/{sort}admissionpolicybindings"

    def write(number):
        name = f"p{number}"
        return [
            apart(server, "POST", policies, policy(name, sort)),
            apart(server, "POST", bindings, binding(name, sort)),
        ]

    assert in_threads(count, write) == [[201, 201]] * count
    assert is_affected(server, "m0")
    for number in range(count):
        assert apart(server, "DELETE", f"{policies}/p{number}") == 200
    assert not is_affected(server, "m1")


def new_server():
    clock = ManualClock(1_800_000_000 * 10**9)
    return ApiServer(MemoryStore(), clock=clock, randomness=Randomness(1))


def apart(server, method, url, body=None):
    """Return the status of an answer given beside the loop, as in a lane."""
    request = HttpRequest(
        method=method,
        path=url,
        headers={"content-type": "application/json"},
        body=b"" if body is None else json.dumps(body).encode(),
    )
    return server.handle_apart(request).status


def is_affected(server, name):
    """Return whether a policy refuses or changes a new object."""
    status, found = ask(server, "POST", MAPS, config_map(name))
    return status != 201 or found["data"] != config_map()["data"]


def policy(name, sort):
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["configmaps"],
    }
    spec = {"matchConstraints": {"resourceRules": [rule]}}
    if sort == "validating":
        spec["validations"] = [{"expression": "false"}]
    else:
        spec["reinvocationPolicy"] = "Never"
        patch = {"expression": "[JSONPatch{op: 'add', path: '/data/by', value: 'policy'}]"}
        spec["mutations"] = [{"patchType": "JSONPatch", "jsonPatch": patch}]
    return {"metadata": {"name": name}, "spec": spec}


def binding(name, sort):
    spec = {"policyName": name}
    if sort == "validating":
        spec["validationActions"] = ["Deny"]
    return {"metadata": {"name": name}, "spec": spec}
