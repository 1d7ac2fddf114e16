"""What is a failure and what is not: statuses that a start refreshes, data that are deleted."""

import copy
from dataclasses import replace

import pytest

import sitescenarios
from dralab.api.status import ApiError
from dralab.apiserver.storage import Key, MemoryStore
from dralab.kernel.clock import SECOND
from dralab.objects.metadata import key_of
from dralab.runtime.resources import CONFIG_MAPS, VOLUME_CLAIMS
from dralab.testing import replays
from dralab.testing.faults import TOUCHED, PlannedFault
from dralab.testing.final_state import final_state
from dralab.testing.search import search
from dralab.testing.trial import ScenarioFails, expected_end, run_trial
from dralab.testing.trial_scenario import ClusterParts, TrialLimits
from siteoperators import SITES, Sites

RESTART = PlannedFault(fault="restart", program="operator", at=28 * SECOND, duration=SECOND)


class Counts:
    """Notes in each site how many there are, when it starts: it does not look again."""

    part = "status"

    def __init__(self, manager):
        self.client, self.counted = manager.client, None
        self.queue = manager.queue("sites", self.reconcile)
        self.sites = manager.cache(SITES)
        self.sites.subscribe(lambda old, new: self.queue.add((new or old)["metadata"]["name"]))

    def reconcile(self, name):
        if self.counted is None:
            self.counted = len(self.client.list(SITES).items)
        try:
            site = self.client.get(SITES, name, "default")
        except ApiError:
            return
        if (site.get(self.part) or {}).get("sites") != self.counted:
            status = self.part if self.part == "status" else ""
            body = {**site, self.part: {"sites": self.counted}}
            self.client.update(SITES, body, subresource=status)


class CountsInSpec(Counts):
    """Writes the same where a user's wishes are."""

    part = "spec"


@pytest.mark.parametrize(
    ("operator", "found"), [(Counts, []), (CountsInSpec, ["spec.sites is 3, without faults 1"])]
)
def test_a_status_that_a_start_refreshes_is_no_failure_and_a_spec_is(operator, found):
    scenario = sitescenarios.scenario(operator, checks=[])
    result = run_trial(scenario, expected_end(scenario), [RESTART], 0)
    assert [each for each in found if each not in str(result.violations)] == []
    assert len(result.violations) > 0 or not found


class KeepsVolumes:
    """Has a claim for each site; one that starts takes all claims for leftovers, and makes them anew."""

    careful = False

    def __init__(self, manager):
        self.client = manager.client
        if not self.careful:
            for each in self.client.list(VOLUME_CLAIMS, "default").items:
                self.client.delete(VOLUME_CLAIMS, each["metadata"]["name"], "default")
        self.queue = manager.queue("sites", self.reconcile)
        self.sites = manager.cache(SITES)
        self.sites.subscribe(lambda old, new: new and self.queue.add(new["metadata"]["name"]))

    def reconcile(self, name):
        claim = {
            "metadata": {"name": name},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
            },
        }  # fmt: skip
        try:
            self.client.create(VOLUME_CLAIMS, claim, "default")
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise


class KeepsAll(KeepsVolumes):
    """Does the same, and takes what is there for what it is."""

    careful = True


@pytest.mark.parametrize(("operator", "lost"), [(KeepsVolumes, "abcd"), (KeepsAll, "")])
def test_data_that_are_deleted_and_made_anew_are_lost(operator, lost):
    controllers = ["persistentvolume-binder-controller"]
    parts = ClusterParts(controllers=controllers, scheduler=False)
    scenario = sitescenarios.scenario(operator, checks=[], cluster=parts)
    result = run_trial(scenario, expected_end(scenario), [RESTART], 0)
    told = [each.text for each in result.violations if each.oracle == "data-loss"]
    what = "programs delete persistentvolumeclaims default/{} 1 times, 0 without faults"
    assert told == [what.format(name) for name in lost]


def test_the_mark_of_a_fault_is_no_difference_wherever_a_program_copies_it():
    def state(*marks):
        kept = (
            {"metadata": {"annotations": dict.fromkeys(marks, "1")}} if marks else {"metadata": {}}
        )
        store = MemoryStore()
        key = Key("example.com/sites", "default", "a")
        value = {"metadata": {"name": "a"}, "spec": {"template": kept}}
        store.create(key, value)
        return final_state(store)

    assert list(state(TOUCHED).differences(state())) == []
    assert list(state(TOUCHED, "mine").differences(state())) != []


class Overwrites(Sites):
    """Writes the whole directory, of which it states no resourceVersion."""

    def change_directory(self, change):
        directory = copy.deepcopy(self.client.get(CONFIG_MAPS, "directory", "default"))
        if change(directory):
            del directory["metadata"]["resourceVersion"]
            self.client.update(CONFIG_MAPS, directory)


class OverwritesItsOwn(Sites):
    """Writes the whole of its own settings: nobody else has anything in them."""

    def settings(self, key, site):
        name = super().settings(key, site)
        body = {
            "metadata": {"name": name, "namespace": "default", "labels": {"site": key.name}},
            "data": {"theme": "plain"},
        }
        if not (site.get("status") or {}).get("settings"):
            found = self.client.get(CONFIG_MAPS, name, "default")
            body["metadata"]["ownerReferences"] = found["metadata"]["ownerReferences"]
            self.client.update(CONFIG_MAPS, body)
        return name


def conflict(verb, resource, nth):
    return PlannedFault(fault="conflict", program="operator", verb=verb, resource=resource, nth=nth)


def test_the_mark_of_a_fault_is_no_difference_in_json_that_a_program_keeps():
    def state(kept):
        store = MemoryStore()
        annotations = {"kopf.zalando.org/last-handled-configuration": kept}
        metadata = {"name": "a", "annotations": annotations}
        store.create(Key("example.com/sites", "default", "a"), {"metadata": metadata})
        return final_state(store)

    plain = state('{"spec":{},"metadata":{"labels":{}}}\n')
    mark = '"annotations":{"dralab.dev/touched":"1767225608001000000"}'
    marked = state(f'{{"spec":{{}},"metadata":{{"labels":{{}},{mark}}}}}\n')
    assert list(marked.differences(plain)) == []
    bare = state('{"spec":{}}')
    assert list(state(f'{{"spec":{{}},"metadata":{{{mark}}}}}').differences(bare)) == []
    other = list(state('{"spec":{"size":2}}').differences(bare))
    assert [each.text for each in other] == [
        "metadata.annotations.kopf.zalando.org/last-handled-configuration.spec.size is 2, "
        "without faults not set"
    ]
    assert list(state("{not JSON").differences(bare)) != []


@pytest.mark.parametrize(
    ("operator", "nth", "lost"), [(Sites, 1, 0), (Overwrites, 1, 1), (OverwritesItsOwn, 2, 0)]
)
def test_an_update_that_removes_what_another_client_has_just_written_is_a_lost_update(
    operator, nth, lost
):
    scenario = sitescenarios.scenario(operator, checks=[])
    found = conflict("update", "configmaps", nth)
    result = run_trial(scenario, expected_end(scenario), [found], 0)
    assert result.fired == (found,)
    wanted = [
        "lost-update: operator: update configmaps default/directory without resourceVersion "
        "removes the annotation dralab.dev/touched that another client wrote just before"
    ]
    assert [str(each) for each in result.violations] == wanted * lost


@pytest.mark.thorough
def test_a_lost_update_is_found_within_60_seeds():
    scenario = sitescenarios.scenario(Overwrites, checks=[])
    failures = search(scenario, expected_end(scenario), range(60)).failures
    assert any(each.startswith("lost-update") for each in failures)


class Sweeps(Sites):
    """Removes settings whose site is not listed, and looks at all sites, each ten seconds."""

    careful = False

    def __init__(self, manager):
        super().__init__(manager)
        self.maps = manager.cache(CONFIG_MAPS)
        self.unwanted = manager.queue("unwanted", self.remove)
        manager.every(10 * SECOND, self.sweep)

    def sweep(self):
        try:
            sites = self.client.list(SITES).items
        except ApiError:
            if self.careful:
                return
            sites = []
        names = {each["metadata"]["name"] for each in sites}
        for each in self.maps:
            if each["metadata"].get("labels", {}).get("site", "") not in {"", *names}:
                self.unwanted.add(each["metadata"]["name"])
        for each in self.sites:
            self.queue.add(key_of(each))

    def remove(self, name):
        try:
            self.client.delete(CONFIG_MAPS, name, "default")
        except ApiError as error:
            if error.reason != "NotFound":
                raise


class SweepsWithCare(Sweeps):
    """Does so where the list was answered."""

    careful = True


@pytest.mark.parametrize(("operator", "made_anew"), [(Sweeps, "ab"), (SweepsWithCare, "")])
def test_what_is_deleted_for_a_list_that_failed_is_not_made_good_by_making_it_again(
    operator, made_anew
):
    scenario = sitescenarios.scenario(operator, checks=[])
    refused = PlannedFault(
        fault="refuse", program="operator", verb="list", resource="sites.example.com",
        nth=4, code=500,
    )  # fmt: skip
    result = run_trial(scenario, expected_end(scenario), [refused], 0)
    assert result.fired == (refused,)
    what = (
        "recreation: programs delete configmaps default/{}-settings and create it again with the "
        "same content 1 times, 0 without faults"
    )
    assert [str(each) for each in result.violations] == [what.format(name) for name in made_anew]


@pytest.mark.thorough
def test_a_list_taken_for_an_empty_one_is_found_within_100_seeds():
    scenario = sitescenarios.scenario(Sweeps, checks=[])
    failures = search(scenario, expected_end(scenario), range(100)).failures
    assert any(each.startswith("recreation") for each in failures)


class StopsWorking(Sites):
    """Does nothing any more twenty seconds after its start, as with credentials that ran out."""

    def __init__(self, manager):
        super().__init__(manager)
        self.ends = manager.engine.clock.now() + 20 * SECOND

    def reconcile(self, key):
        if self.engine.clock.now() < self.ends:
            super().reconcile(key)


def test_a_mistake_of_the_run_without_faults_is_told_as_one():
    """Only the last site has no settings without faults: a restart makes them."""
    scenario = sitescenarios.scenario(StopsWorking, checks=[])
    expected = expected_end(scenario)
    texts = [each.text for each in run_trial(scenario, expected, [RESTART], 0).violations]
    assert texts[0] == (
        "configmaps default/d-settings: 1 at the end, 0 without faults; the run without faults "
        "ends like this trial if its programs start once more at rest"
    )
    failure = search(scenario, expected, range(16)).explained[0]
    number = len(failure.seeds)
    assert number > 2
    for tried, usual in ((2 * number, False), (2 * number - 1, True), (3, False)):
        lines = replays.failure_lines(replace(failure, tried=tried))
        line = f"{number} of {tried} seeds end so: the run without faults may be the one that is "
        assert any(each.startswith(line) for each in lines) is usual


class DrawsLots(Sites):
    """Of each ten starts one does nothing."""

    def __init__(self, manager):
        super().__init__(manager)
        self.idle = manager.randomness.stream("lots").random() < 0.1

    def reconcile(self, key):
        if not self.idle:
            super().reconcile(key)


def test_an_end_that_needs_no_fault_is_not_told_as_one_that_faults_make():
    scenario = sitescenarios.scenario(DrawsLots, checks=[])
    expected = expected_end(scenario)
    seed = next(seed for seed in range(100) if run_trial(scenario, expected, [], seed).failed)
    [failure, *_] = search(scenario, expected, [seed]).explained
    assert failure.schedule == []
    lines = replays.failure_lines(failure)
    assert f"it ends so without faults with seed {seed}, and otherwise with seeds 0 to 2" in lines


class NeverRests(Sites):
    """Writes a number each seven seconds."""

    def __init__(self, manager):
        super().__init__(manager)
        self.number = 0
        manager.every(7 * SECOND, self.count)

    def count(self):
        self.number += 1
        self.client.patch(CONFIG_MAPS, "directory", {"data": {"n": str(self.number)}}, "default")


def test_a_run_without_faults_tells_of_none():
    limits = TrialLimits(settle=100 * SECOND)
    with pytest.raises(ScenarioFails, match="does not come to rest after the script: configmaps"):
        expected_end(sitescenarios.scenario(NeverRests, limits=limits))
