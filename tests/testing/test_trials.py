"""Trials of small operators: faults happen as in a real cluster, and what is wrong is found."""

from functools import cache

import pytest

import sitescenarios
from dralab.api.status import ApiError
from dralab.kernel.clock import SECOND
from dralab.runtime.resources import CONFIG_MAPS
from dralab.testing.faults import PlannedFault
from dralab.testing.search import search
from dralab.testing.trial import ScenarioFails, expected_end, run_trial, schedule
from dralab.testing.trial_scenario import HistoryInvariant, ObjectInvariant, TrialLimits
from dralab.testing.world import TrialWorld
from siteoperators import PLANTED, SITES, Sites

MAPS = "configmaps"


# A seed in which "lost finalizer" shows.
FAILING = [1]


def fault(name, verb="", resource="sites.example.com", **given):
    return PlannedFault(fault=name, program="operator", verb=verb, resource=resource, **given)


@cache
def prepared(operator):
    scenario = sitescenarios.scenario(operator)
    return scenario, expected_end(scenario)


def tried(operator, *faults, seed=0):
    scenario, expected = prepared(operator)
    return run_trial(scenario, expected, faults, seed)


# For each planted bug one schedule that shows it; `test_within_100_seeds` finds it blindly.
SHOWN_BY = {
    "stale read after restart": [
        fault("restart", resource="", at=9 * SECOND, duration=SECOND // 2),
        fault("stale-list", "list", nth=2, behind=3, duration=15 * SECOND),
    ],
    "no re-check on conflict": [fault("conflict", "update", MAPS, nth=4)],
    "lost finalizer": [
        fault("kill", "update", nth=4, moment="after", duration=SECOND),
    ],
    "requeue storm": [fault("lose-answer", "create", MAPS, nth=1)],
    "orphan after crash": [fault("kill", "create", MAPS, nth=2, moment="after", duration=SECOND)],
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_shows_and_the_correct_operator_passes(bug):
    result = tried(PLANTED[bug], *SHOWN_BY[bug])
    assert result.failed
    assert len(result.fired) == len(SHOWN_BY[bug])
    assert not tried(Sites, *SHOWN_BY[bug]).violations


def test_the_correct_operator_passes_the_first_seeds():
    scenario, expected = prepared(Sites)
    found = search(scenario, expected, range(12))
    assert found.failures == {}
    assert len(found.coverage.counts) > 5


@pytest.mark.conformance
@pytest.mark.parametrize("bug", PLANTED)
def test_within_100_seeds(bug):
    scenario, expected = prepared(PLANTED[bug])
    assert search(scenario, expected, range(100)).failed


@pytest.mark.conformance
def test_the_correct_operator_raises_no_false_alarm_in_500_seeds():
    scenario, expected = prepared(Sites)
    assert search(scenario, expected, range(500)).failures == {}


def test_the_same_seed_gives_the_same_history():
    scenario, expected = prepared(Sites)
    faults = schedule(scenario, expected, 5)
    first, second = (run_trial(scenario, expected, faults, 5) for _ in range(2))
    assert first.history.entries == second.history.entries
    assert len(first.history) > 20


def test_a_failure_is_explained_by_the_one_fault_that_makes_it():
    scenario, expected = prepared(PLANTED["lost finalizer"])
    found = search(scenario, expected, FAILING)
    assert found.explained
    for failure in found.explained:
        assert len(failure.schedule) == 1
        assert failure.result.failed


# --- what a fault does to a request ------------------------------------------------------------


def texts(result):
    return [entry.text for entry in result.history.entries]


def test_a_killed_program_does_nothing_more_and_starts_again():
    kill = fault("kill", "create", MAPS, nth=1, moment="before", duration=2 * SECOND)
    entries = tried(Sites, kill).history.entries
    at = next(n for n, entry in enumerate(entries) if "is killed before create" in entry.text)
    after = [entry for entry in entries[at + 1 :] if entry.who == "operator"]
    assert after[0].text == "starts (incarnation 2)"
    assert after[0].at == entries[at].at + 2 * SECOND


def test_an_old_list_may_still_have_what_was_deleted_last():
    restart = fault("restart", resource="", at=18 * SECOND, duration=SECOND)
    old = fault("stale-list", "list", nth=2, moment="deletion", behind=1, duration=SECOND)
    entries = tried(Sites, restart, old).history.entries
    text = "its list of sites.example.com at start 2 is from before the last deletion"
    told = next(entry for entry in entries if entry.text.startswith(text))
    deleted = next(
        e for e in entries if e.text == "update sites.example.com default/a" and e.at > 15 * SECOND
    )
    assert told.revision == deleted.revision - 1


def test_a_write_that_was_on_its_way_when_the_program_died_arrives_later():
    kill = fault("kill", "create", MAPS, nth=1, moment="during", duration=2 * SECOND)
    entries = tried(Sites, kill).history.entries
    killed = next(entry.at for entry in entries if "is killed during" in entry.text)
    arrives = next(entry.at for entry in entries if entry.text.startswith("create configmaps"))
    assert arrives == killed + 2 * SECOND


def test_a_conflict_is_made_by_a_real_write():
    found = texts(tried(Sites, fault("conflict", "update", nth=1)))
    at = found.index("patch sites.example.com default/a")
    assert found[at + 1] == "update sites.example.com default/a -> 409 Conflict"


def test_a_lost_answer_comes_after_a_commit():
    found = texts(tried(Sites, fault("lose-answer", "create", MAPS, nth=1)))
    at = found.index("create configmaps registry/a")
    assert "create configmaps registry/a -> 503 ServiceUnavailable" in found[at:]


def test_a_refused_request_changes_nothing():
    entries = tried(Sites, fault("refuse", "create", MAPS, nth=1, code=429)).history.entries
    refused = next(entry for entry in entries if "429" in entry.text and "->" in entry.text)
    assert refused.text == "create configmaps registry/a -> 429 TooManyRequests"
    assert refused.revision == 0


def test_the_cluster_goes_on_while_a_request_is_slow():
    slow = fault("slow", "create", MAPS, nth=1, duration=40 * SECOND)
    entries = tried(Sites, slow).history.entries
    began = next(entry.at for entry in entries if entry.what == "fault")
    ended = next(entry.at for entry in entries if entry.text == "create configmaps registry/a")
    assert ended == began + 40 * SECOND
    between = [entry for entry in entries if began < entry.at < ended]
    assert {"apply Site b", "delete Site a"} <= {entry.text for entry in between}
    assert not [each for each in between if each.who == "operator" and each.what == "write"]


def test_a_paused_program_does_what_it_would_have_done_afterwards():
    pause = fault("pause", resource="", at=SECOND // 2, duration=15 * SECOND)
    entries = tried(Sites, pause).history.entries
    first = next(e.at for e in entries if e.who == "operator" and e.what == "write")
    assert first >= SECOND // 2 + 15 * SECOND


def test_a_held_watch_shows_events_late_and_in_order():
    hold = fault("hold-watch", "watch", nth=1, duration=15 * SECOND)
    entries = tried(Sites, hold).history.entries
    seen = [entry for entry in entries if entry.what == "seen"]
    assert seen[0].at == SECOND + 15 * SECOND
    revisions = [entry.revision for entry in seen]
    assert revisions == sorted(revisions)


def test_an_expired_watch_never_shows_what_it_missed():
    gap = fault("expire-watch", "watch", nth=1, duration=2 * SECOND)
    entries = tried(Sites, gap).history.entries
    missed = [entry for entry in entries if entry.text.startswith("never sees ADDED")]
    assert missed
    assert "sees ADDED sites.example.com default/a" not in [
        entry.text for entry in entries if entry.what == "seen"
    ]
    # The operator itself lists for each new port; the relist is the one when the watch ends.
    assert SECOND + 2 * SECOND in [
        entry.at for entry in entries if entry.text == "list sites.example.com"
    ]


def test_a_stale_list_is_a_state_that_was_there_and_catches_up():
    faults = SHOWN_BY["stale read after restart"]
    entries = tried(Sites, *faults).history.entries
    old = next(e for e in entries if e.what == "fault" and "list of sites" in e.text)
    newest = max(e.revision for e in entries if e.at <= old.at)
    assert 0 < old.revision < newest


# --- what is judged ------------------------------------------------------------------------------


def test_a_scenario_that_fails_without_faults_is_refused():
    class Broken(Sites):
        def reconcile(self, key):
            raise KeyError("no such thing")

    with pytest.raises(ScenarioFails, match="operator crashes: KeyError"):
        expected_end(sitescenarios.scenario(Broken))


def test_an_invariant_that_is_false_from_the_start_is_told():
    invariant = ObjectInvariant(
        name="never", api_version="v1", kind="ConfigMap", expression="object.kind == 'Secret'"
    )
    with pytest.raises(ScenarioFails, match="invariant: never: configmaps"):
        expected_end(sitescenarios.scenario(Sites, invariants=[invariant]))


def test_an_invariant_about_an_unknown_kind_is_told():
    invariant = ObjectInvariant(
        name="odd", api_version="example.org/v9", kind="Odd", expression="true"
    )
    with pytest.raises(ScenarioFails, match=r"odd: no server serves example.org/v9 Odd"):
        expected_end(sitescenarios.scenario(Sites, invariants=[invariant]))


def test_a_program_that_never_rests_is_told_with_what_it_changes():
    class Restless(Sites):
        def __init__(self, manager):
            super().__init__(manager)
            self.number = 0
            manager.every(7 * SECOND, self.touch)

        def touch(self):
            self.number += 1
            patch = {"data": {"number": str(self.number)}}
            self.client.patch(CONFIG_MAPS, "directory", patch, "default")

    limits = TrialLimits(settle=200 * SECOND)
    with pytest.raises(ScenarioFails, match="configmaps default/directory changed"):
        expected_end(sitescenarios.scenario(Restless, limits=limits))


def test_the_number_of_events_is_bounded():
    class Ticking(Sites):
        def __init__(self, manager):
            super().__init__(manager)
            manager.every(SECOND // 100, lambda: None)

    limits = TrialLimits(steps=1000)
    with pytest.raises(ScenarioFails, match=r"limit: more than 1,000 events \(limits.steps\)"):
        expected_end(sitescenarios.scenario(Ticking, limits=limits))


@pytest.mark.parametrize(("times", "too_long"), [(1, False), (9, False), (11, True)])
def test_a_machine_that_is_busy_with_something_else_does_not_fail_a_trial(times, too_long):
    class Wall:
        passed = 0

        def now(self):
            return self.passed

    wall = Wall()
    world = TrialWorld(sitescenarios.scenario(Sites, limits=TrialLimits(wall=100)), wall=wall)
    wall.passed = times * 100 * SECOND
    assert world.took_too_long() is too_long


def test_what_is_applied_while_it_is_deleted_is_made_when_that_is_over():
    from dralab.testing.trial_scenario import ScriptStep

    target = {"apiVersion": "example.com/v1", "kind": "Site", "name": "a"}
    made = sitescenarios.site("a")
    steps = [
        ScriptStep(verb="apply", after=SECOND, objects=[made]),
        ScriptStep(verb="delete", after=5 * SECOND, target=target),
        ScriptStep(verb="apply", after=SECOND, objects=[made]),
    ]
    pause = fault("pause", resource="", at=4 * SECOND, duration=15 * SECOND)
    world = TrialWorld(sitescenarios.scenario(Sites, script=steps), [pause])
    world.run()
    assert world.violations == []
    assert [each["metadata"]["name"] for each in world.user.list(SITES).items] == ["a"]


def test_a_loop_at_one_instant_is_told():
    class Spinning(Sites):
        def changed(self, old, new):
            self.engine.soon(lambda: self.changed(old, new))

    with pytest.raises(ScenarioFails, match="hot-loop: 20,000 events at one instant"):
        expected_end(sitescenarios.scenario(Spinning))


def test_requests_in_the_quiet_state_are_a_hot_loop():
    class Busy(Sites):
        """Polls after an answer was lost."""

        def reconcile(self, key):
            try:
                super().reconcile(key)
            except ApiError as error:
                if error.reason == "ServiceUnavailable":
                    self.poll()
                raise

        def poll(self):
            self.client.get(CONFIG_MAPS, "directory", "default")
            self.engine.after(SECOND, self.poll)

    result = tried(Busy, fault("lose-answer", "create", MAPS, nth=1))
    assert "hot-loop: operator repeats" in str(result.violations[0])


def test_a_program_that_exits_has_crashed():
    class Exiting(Sites):
        """Ends the process, as programs do that cannot go on."""

        def reconcile(self, key):
            raise SystemExit(3)

    with pytest.raises(ScenarioFails, match="operator crashes: SystemExit: 3"):
        expected_end(sitescenarios.scenario(Exiting))


def test_a_program_that_never_asks_its_manager_is_told_what_to_use():
    class Apart:
        """Has a server of its own."""

        def __init__(self, manager):
            pass

    with pytest.raises(ScenarioFails, match="sends no request: it must use the client or the cac"):
        expected_end(sitescenarios.scenario(Apart))


def test_a_check_that_changes_what_it_is_given_changes_nothing_else():
    def clears(objects, _history):
        for each in objects:
            each.clear()
        return ""

    checks = [HistoryInvariant(name=name, check=clears) for name in ("first", "second")]
    assert expected_end(sitescenarios.scenario(Sites, checks=checks)).state.objects


def test_a_retry_that_is_due_later_than_the_quiet_minute_is_waited_for():
    class Patient(Sites):
        """Waits for long after a refusal."""

        def reconcile(self, key):
            try:
                return super().reconcile(key)
            except ApiError as error:
                return 300 * SECOND if error.code == 429 else 0

    refused = fault("refuse", "create", MAPS, nth=1, code=429)
    assert tried(Patient, refused).violations == ()


def test_the_lists_of_a_late_start_are_not_a_hot_loop():
    """Found with the garbage collector, which lists 62 kinds (seed 178)."""

    class ManyLists(Sites):
        def __init__(self, manager):
            super().__init__(manager)
            for _ in range(80):
                self.client.list(CONFIG_MAPS)

    late = fault("restart", resource="", at=20 * SECOND, duration=40 * SECOND)
    assert tried(ManyLists, late).violations == ()


def test_a_program_with_an_error_of_its_own_crashes():
    class Fragile(Sites):
        def reconcile(self, key):
            try:
                super().reconcile(key)
            except ApiError as error:
                raise AttributeError("no such field") from error

    result = tried(Fragile, fault("refuse", "create", MAPS, nth=1, code=500))
    assert str(result.violations[0]).startswith(
        "crash: operator crashes: AttributeError: no such field (test_trials.py:"
    )


def test_one_of_two_replicas_acts_and_the_other_takes_over():
    from dataclasses import replace

    scenario = sitescenarios.scenario(Sites)
    scenario = replace(scenario, programs=[replace(scenario.programs[0], replicas=2)])
    pause = fault("pause", resource="", at=SECOND // 2, duration=40 * SECOND)
    world = TrialWorld(scenario, [pause])
    world.run()
    assert world.violations == []
    writers = {
        entry.who
        for entry in world.history.of("write")
        if "sites" in entry.text and entry.who.startswith("operator")
    }
    assert writers >= {"operator-1"}
    assert len(world.user.list(SITES).items) == 3


def test_names_that_were_generated_from_generated_names_are_alike():
    from dralab.apiserver.storage import Key, MemoryStore
    from dralab.testing.final_state import final_state

    def store(pod):
        found = MemoryStore()
        for resource, prefix, name in (
            ("pods", "web-", pod),
            ("resource.k8s.io/resourceclaims", f"{pod}-gpu-", f"{pod}-gpu-77777"),
        ):
            metadata = {"name": name, "generateName": prefix, "namespace": "default"}
            found.create(Key(resource, "default", name), {"metadata": metadata})
        return final_state(found)

    assert "resource.k8s.io/resourceclaims default/web-*-gpu-*" in store("web-aaaaa").objects
    assert list(store("web-aaaaa").differences(store("web-bbbbb"))) == []


def test_the_order_of_named_items_is_not_compared():
    from dralab.apiserver.storage import Key, MemoryStore
    from dralab.testing.final_state import final_state

    def state(field, *names):
        store = MemoryStore()
        spec = {field: [{"name": name, "port": ord(name)} for name in names]}
        store.create(Key("services", "default", "a"), {"metadata": {"name": "a"}, "spec": spec})
        return final_state(store)

    assert list(state("ports", "x", "y").differences(state("ports", "y", "x"))) == []
    assert list(state("initContainers", "x", "y").differences(state("initContainers", "y", "x")))
