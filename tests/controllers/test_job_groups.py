"""Jobs whose pods are scheduled together: the Workload and the PodGroup that they get."""

import pytest

from dralab.api.resource.features import default_of
from dralab.api.status import ApiError
from dralab.controllers import registry
from dralab.runtime.client import Resource
from dralab.runtime.resources import CRON_JOBS, JOBS, PODS
from labs import Lab

GROUP = "scheduling.k8s.io"
GROUPS = Resource(GROUP, "v1beta1", "podgroups")
WORKLOADS = Resource(GROUP, "v1beta1", "workloads")


def lab_with(*gates):
    made = Lab(features=default_of("1.37") | set(gates), release="1.37")
    registry.CONTROLLERS["job-controller"](made.manager)
    made.start()
    return made


@pytest.fixture
def lab():
    return lab_with("WorkloadWithJob", "GenericWorkload", "TopologyAwareWorkloadScheduling")


def job(name="train", parallelism=3, template=(), **scheduling):
    pod = {"containers": [{"name": "main", "image": "busybox"}], "restartPolicy": "Never"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "parallelism": parallelism,
            "completions": parallelism,
            "template": {"spec": {**pod, **dict(template)}},
            "scheduling": scheduling,
        },
    }


def only(lab, resource):
    (found,) = lab.all(resource)
    return found


RACK = {"topology": [{"key": "rack"}]}


def test_the_pods_of_a_job_are_of_one_group_made_from_a_template(lab):
    lab.add(
        JOBS,
        job(schedulingPolicy={"gang": {}}, schedulingConstraints=RACK, disruptionMode={"all": {}}),
    )
    lab.wait(1)
    workload, group = only(lab, WORKLOADS), only(lab, GROUPS)
    (template,) = workload["spec"]["podGroupTemplates"]
    assert template["name"] == "train-pgt-0"
    assert workload["spec"]["controllerRef"] == {
        "apiGroup": "batch", "kind": "Job", "name": "train",
    }  # fmt: skip
    assert group["spec"] == {
        "workloadRef": {
            "workloadName": workload["metadata"]["name"], "templateName": "train-pgt-0",
        },
        "schedulingPolicy": {"gang": {"minCount": 3}},
        "schedulingConstraints": RACK,
        "disruptionMode": {"all": {}},
        **({"priority": 0} if "priority" in group["spec"] else {}),
    }  # fmt: skip
    assert [each["kind"] for each in group["metadata"]["ownerReferences"]] == ["Job", "Workload"]
    pods = lab.all(PODS)
    assert len(pods) == 3
    for pod in pods:
        name = group["metadata"]["name"]
        assert pod["spec"]["schedulingGroup"] == {"podGroupName": name}
        assert [each["kind"] for each in pod["metadata"]["ownerReferences"]] == ["Job", "PodGroup"]


def test_the_number_of_the_gang_follows_that_of_the_job(lab):
    lab.add(JOBS, job(schedulingPolicy={"gang": {"minCount": 3}}))
    lab.wait(1)
    patch = {"spec": {"scheduling": {"schedulingPolicy": {"gang": {"minCount": 2}}}}}
    lab.server.patch(JOBS, "train", patch, "default", type="merge")
    lab.wait(1)
    (template,) = only(lab, WORKLOADS)["spec"]["podGroupTemplates"]
    both = [template["schedulingPolicy"], only(lab, GROUPS)["spec"]["schedulingPolicy"]]
    assert both == [{"gang": {"minCount": 2}}] * 2


def test_pods_that_name_their_group_stay_as_they_are(lab):
    lab.add(
        JOBS,
        job(template={"schedulingGroup": {"podGroupName": "own"}}, schedulingPolicy={"gang": {}}),
    )
    lab.wait(1)
    assert (lab.all(WORKLOADS), lab.all(GROUPS)) == ([], [])


def refused(lab, body):
    with pytest.raises(ApiError) as error:
        lab.server.create(JOBS, body, "default")
    return error.value.message


def test_without_its_gate_the_field_is_dropped():
    lab = lab_with()
    (made,) = lab.add(JOBS, job(schedulingPolicy={"gang": {}}))
    lab.wait(1)
    assert "scheduling" not in made["spec"]
    assert all("schedulingGroup" not in each["spec"] for each in lab.all(PODS))


def test_no_gang_is_larger_than_the_job(lab):
    message = refused(lab, job(schedulingPolicy={"gang": {"minCount": 4}}))
    assert "must not be greater than parallelism (3)" in message


CLAIM = {"name": "gpus", "resourceClaimName": "shared"}


@pytest.mark.parametrize(
    ("scheduling", "path", "why"),
    [
        ({"resourceClaims": [{"name": "a"}]}, "resourceClaims[0]", "must specify one of"),
        (
            {"resourceClaims": [CLAIM | {"resourceClaimTemplateName": "t"}]},
            "resourceClaims[0]",
            "must specify exactly one of",
        ),
        ({"resourceClaims": [CLAIM, CLAIM]}, "resourceClaims[1]", "Duplicate value"),
        ({"resourceClaims": [CLAIM | {"name": ""}]}, "resourceClaims[0].name", "Required value"),
        (
            {"resourceClaims": [CLAIM | {"name": "a" * 64}]},
            "resourceClaims[0].name",
            "no more than 63 bytes",
        ),
        (
            {"resourceClaims": [CLAIM | {"name": f"c{n}"} for n in range(5)]},
            "resourceClaims",
            "must have at most 4 items",
        ),
        ({"schedulingPolicy": {}}, "schedulingPolicy", "must specify one of"),
        (
            {"schedulingPolicy": {"gang": {"minCount": 0}}},
            "schedulingPolicy.gang.minCount",
            "must be greater than or equal to 1",
        ),
        ({"disruptionMode": {"all": {}}}, "disruptionMode", "not supported with the Basic"),
    ],
)
def test_a_job_is_refused_whose_pods_cannot_be_scheduled_as_it_asks(lab, scheduling, path, why):
    message = refused(lab, job(**scheduling))
    assert f"spec.scheduling.{path}: " in message
    assert why in message
    of_cron = {
        "metadata": {"name": "nightly"},
        "spec": {"schedule": "1 * * * *", "jobTemplate": {"spec": job(**scheduling)["spec"]}},
    }
    with pytest.raises(ApiError) as error:
        lab.server.create(CRON_JOBS, of_cron, "default")
    assert f"spec.jobTemplate.spec.scheduling.{path}: " in error.value.message


def test_the_claims_of_a_group_stay_as_they_are(lab):
    lab.add(JOBS, job(schedulingPolicy={"gang": {}}, resourceClaims=[CLAIM]))
    patch = {"spec": {"scheduling": {"resourceClaims": None}}}
    with pytest.raises(ApiError, match=r"resourceClaims: Invalid value: .*field is immutable"):
        lab.server.patch(JOBS, "train", patch, "default", type="merge")


def test_scheduling_that_asks_for_nothing_is_kept(lab):
    (made,) = lab.add(JOBS, job())
    assert made["spec"]["scheduling"] == {}


def test_the_policy_of_a_job_stays_what_it_is(lab):
    lab.add(JOBS, job(schedulingPolicy={"gang": {}}))
    patch = {"spec": {"scheduling": {"schedulingPolicy": {"gang": None, "basic": {}}}}}
    with pytest.raises(ApiError, match="variant is immutable"):
        lab.server.patch(JOBS, "train", patch, "default", type="merge")
    with pytest.raises(ApiError, match="cannot be cleared"):
        lab.server.patch(JOBS, "train", {"spec": {"scheduling": None}}, "default", type="merge")
