"""The PodGroup of a Job: its pods are scheduled as `spec.scheduling` asks (KEP-5547, 1.37).

Source: kube-controller-manager's `job_scheduling_manager.go`. A new Job with `spec.scheduling` gets
a Workload with one template and a PodGroup made from it; its pods name the group. Upstream makes
both for every other Job, too, with a policy that changes nothing: here such a Job has neither.
"""

from typing import Final

from dralab.api.status import ApiError
from dralab.controllers.workloads import PodControl, name_of_letters
from dralab.objects.conditions import condition_of
from dralab.objects.metadata import controller_of, key_of, owner_reference, status_of, uid_of
from dralab.objects.workloads import group_spec
from dralab.runtime.client import Client, Resource
from dralab.runtime.resources import POD_GROUPS, WORKLOADS, versions_of
from dralab.values.json_types import JsonDict, JsonObject

# Jobs have spec.scheduling since the release that has these versions.
GROUPS: Final = versions_of(POD_GROUPS)[0]
TEMPLATED: Final = versions_of(WORKLOADS)[0]


class JobGroups:
    """Creates Workloads and PodGroups of Jobs, and updates the size of a gang."""

    def __init__(self, client: Client, control: PodControl) -> None:
        self.client = client
        self.control = control

    def of(self, job: JsonDict, pods: list[JsonDict]) -> JsonDict | None:
        """Return the PodGroup of a job's pods; None: they are scheduled one by one."""
        asked = group_spec(job)
        if asked is None or controller_of(job):
            return None
        key = key_of(job)
        template = {"name": f"{key.name}-pgt-0", **asked}
        name = f"{key.name}-{name_of_letters(uid_of(job))}"
        group_name = f"{name}-{template['name']}-{name_of_letters(name, template['name'])}"
        workload = self._get(TEMPLATED, name, key.namespace)
        group = self._get(GROUPS, group_name, key.namespace)
        is_new = not (
            pods
            or any(status_of(job).get(field) for field in ("startTime", "succeeded", "failed"))
            or condition_of(job, "Suspended")
        )
        if workload is None and is_new:
            workload = self._create(job, TEMPLATED, name, _workload(job, template))
        if group is None and workload is not None and is_new:
            body = _group(job, template, workload)
            group = self._create(job, GROUPS, group_name, body)
        for resource, made in ((TEMPLATED, workload), (GROUPS, group)):
            if made is not None:
                self._follow(resource, made, template["schedulingPolicy"])
        return group

    def _get(self, resource: Resource, name: str, namespace: str) -> JsonDict | None:
        try:
            return self.client.get(resource, name, namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            return None

    def _create(self, job: JsonDict, resource: Resource, name: str, body: JsonDict) -> JsonDict:
        kind = "Workload" if resource == TEMPLATED else "PodGroup"
        namespace = key_of(job).namespace
        body["metadata"] |= {"name": name, "namespace": namespace}
        try:
            made = self.client.create(resource, body, namespace)
        except ApiError as error:
            text = f"Failed to create {kind} for Job {key_of(job).name}: {error.message}"
            self.control.say(job, f"Failed{kind}Create", text, bad=True)
            raise
        self.control.say(job, f"{kind}Created", f"Created {kind} {name} for Job {key_of(job).name}")
        return made

    def _follow(self, resource: Resource, made: JsonDict, policy: JsonObject) -> None:
        wanted = (policy.get("gang") or {}).get("minCount")
        spec: JsonDict = made["spec"]
        held = spec["podGroupTemplates"][0] if resource == TEMPLATED else spec
        gang = held["schedulingPolicy"].get("gang")
        if wanted is None or gang is None or gang.get("minCount") == wanted:
            return
        new: JsonDict = {"schedulingPolicy": {"gang": {"minCount": wanted}}}
        if resource == TEMPLATED:
            new = {"podGroupTemplates": [{**held, **new}]}
        key = key_of(made)
        self.client.patch(resource, key.name, {"spec": new}, key.namespace, type="merge")


def joined(body: JsonDict, group: JsonDict) -> JsonDict:
    """Return a new pod as a member of a group."""
    reference = {
        "apiVersion": f"{GROUPS.group}/{GROUPS.version}",
        "kind": "PodGroup",
        "name": group["metadata"]["name"],
        "uid": uid_of(group),
    }
    body["metadata"]["ownerReferences"].append(reference)
    body["spec"]["schedulingGroup"] = {"podGroupName": group["metadata"]["name"]}
    return body


def _workload(job: JsonDict, template: JsonObject) -> JsonDict:
    owner = owner_reference(job, api_version="batch/v1", kind="Job")
    reference = {"apiGroup": "batch", "kind": "Job", "name": key_of(job).name}
    spec = {"controllerRef": reference, "podGroupTemplates": [template]}
    return {"metadata": {"ownerReferences": [owner]}, "spec": spec}


def _group(job: JsonDict, template: JsonObject, workload: JsonDict) -> JsonDict:
    own = {field: value for field, value in template.items() if field != "name"}
    name = workload["metadata"]["name"]
    owners = [
        owner_reference(job, api_version="batch/v1", kind="Job"),
        {
            "apiVersion": f"{TEMPLATED.group}/{TEMPLATED.version}",
            "kind": "Workload",
            "name": name,
            "uid": uid_of(workload),
        },
    ]
    reference = {"workloadName": name, "templateName": template["name"]}
    return {
        "metadata": {"ownerReferences": owners},
        "spec": {**own, "workloadRef": reference},
    }
