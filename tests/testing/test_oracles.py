"""What is a failure and what is not: statuses that a start refreshes, data that are deleted."""

import pytest

import sitescenarios
from dralab.api.status import ApiError
from dralab.apiserver.storage import Key, MemoryStore
from dralab.kernel.clock import SECOND
from dralab.runtime.resources import VOLUME_CLAIMS
from dralab.testing.faults import TOUCHED, PlannedFault
from dralab.testing.final_state import final_state
from dralab.testing.trial import expected_end, run_trial
from dralab.testing.trial_scenario import ClusterParts
from siteoperators import SITES

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
