"""What is wrong with pods, where no recorded answer of a real server tells."""

import pytest

from dralab.api.core.pods import PodStrategy

MIB = {"requests": {"memory": "1Mi"}, "limits": {"memory": "1Mi"}}
WINDOWS = {"os": {"name": "windows"}}
CONTAINER = "spec.containers[0]"


def pod(*containers, **spec):
    return {"spec": {"containers": list(containers) or [box()], **spec}}


def box(**more):
    return {"name": "c", "image": "i", **more}


def mounted(**more):
    mount = {"name": "v", "mountPath": "/v", **more}
    return pod(box(volumeMounts=[mount]), volumes=[{"name": "v", "emptyDir": {}}])


CASES = [
    (pod(volumes=[{"name": "v", "image": {"pullPolicy": "Always"}}]),
     ["spec.volumes[0].image.reference: Required value"]),
    (pod(box(image=" i")), [f'{CONTAINER}.image: Invalid value: " i": must not have leading or']),
    (pod(box(ports=[{"name": "a", "containerPort": 1}, {"name": "a", "containerPort": 2}])),
     [f'{CONTAINER}.ports[1].name: Duplicate value: "a"']),
    (pod(box(ports=[{"containerPort": 1, "hostPort": 2}]), hostNetwork=True),
     [f"{CONTAINER}.ports[0].hostPort: Invalid value: 2: must match `containerPort` when"]),
    (pod(dnsPolicy="None", dnsConfig={"searches": ["a"]}),
     ["spec.dnsConfig.nameservers: Required value: must provide at least one DNS nameserver"]),
    (pod(dnsConfig={"nameservers": ["1.1.1.1"] * 4, "searches": ["a"] * 33, "options": [{}]}),
     ["spec.dnsConfig.nameservers: Invalid value: ", "spec.dnsConfig.searches: Invalid value: ",
      "spec.dnsConfig.options[0]: Required value: must not be empty"]),
    (pod(dnsConfig={"searches": ["a" * 60] * 32 + ["b"]}),
     ["spec.dnsConfig.searches: Invalid value: "]),
    (pod(hostnameOverride="a", setHostnameAsFQDN=True, hostNetwork=True),
     ["spec.hostnameOverride: Forbidden: may not be specified when setHostnameAsFQDN is true",
      "spec.hostnameOverride: Forbidden: may not be specified when hostNetwork is true"]),
    (pod(hostnameOverride="a" * 65),
     ["spec.hostnameOverride: Too long: may not be more than 64 bytes"]),
    (pod(preemptionPolicy=""), ["spec.preemptionPolicy: Required value"]),
    (pod(schedulingGroup={}), ["spec.schedulingGroup.podGroupName: Invalid value: null: must"]),
    (pod(schedulingGroup={"podGroupName": "A"}), ["spec.schedulingGroup.podGroupName: Invalid val"]),
    (pod(shareProcessNamespace=True, hostPID=True),
     ["spec.securityContext.shareProcessNamespace: Invalid value: true: ShareProcessNamespace"]),
    (pod(securityContext={"supplementalGroups": [-1], "sysctls": [{"name": "a.b"}] * 2}),
     ["spec.securityContext.supplementalGroups[0]: Invalid value: -1: must be between 0 and",
      'spec.securityContext.sysctls[1].name: Duplicate value: "a.b"']),
    (pod(securityContext={"sysctls": [{"name": "net/a"}]}, hostNetwork=True),
     ['spec.securityContext.sysctls[0].name: Invalid value: "net/a": may not be specified when']),
    (pod(securityContext={"appArmorProfile": {"type": "Localhost"}}),
     ["spec.securityContext.appArmorProfile.localhostProfile: Required value: must be set when"]),
    (pod(securityContext={"appArmorProfile": {"type": "Localhost", "localhostProfile": " a" * 2500}}),
     ["spec.securityContext.appArmorProfile.localhostProfile: Invalid value: ",
      "spec.securityContext.appArmorProfile.localhostProfile: Too long: may not be more than 4095"]),
    (pod(securityContext={"windowsOptions": {"gmsaCredentialSpec": "x" * 65_537}}),
     ["spec.securityContext.windowsOptions.gmsaCredentialSpec: Invalid value: "]),
    (pod(box(securityContext={"allowPrivilegeEscalation": False, "privileged": True,
                              "capabilities": {"add": ["CAP_SYS_ADMIN"]}})),
     [f"{CONTAINER}.securityContext: Invalid value: {{", f"{CONTAINER}.securityContext: Invalid val"]),
    (pod(securityContext={"windowsOptions": {"hostProcess": True}}),
     ["spec.hostNetwork: Invalid value: false: hostNetwork must be true if pod contains any host"]),
    (pod(box(securityContext={"windowsOptions": {"hostProcess": True}}), box(name="d"),
         hostNetwork=True),
     ['spec: Invalid value: "": If pod contains any hostProcess containers then all']),
    (pod(box(securityContext={"windowsOptions": {"hostProcess": False}}),
         securityContext={"windowsOptions": {"hostProcess": True}}),
     [f"{CONTAINER}.securityContext.windowsOptions.hostProcess: Invalid value: false: pod host"]),
    (pod(box(securityContext={"privileged": True}), securityContext={"fsGroup": 1}, **WINDOWS),
     ["spec.securityContext.fsGroup: Forbidden: cannot be set for a windows pod",
      f"{CONTAINER}.securityContext.privileged: Forbidden: cannot be set for a windows pod"]),
    (pod(os={"name": "linux"}, securityContext={"windowsOptions": {}}),
     ["spec.securityContext.windowsOptions: Forbidden: windows options cannot be set for a linux"]),
    (pod(resources=MIB, **WINDOWS), ["spec.resources: Forbidden: may not be set for a windows pod"]),
    (pod(box(resources={"limits": {"memory": "2Mi"}}), resources=MIB),
     ['spec.resources.requests[memory]: Invalid value: "1Mi": must be greater than or equal to',
      'spec.resources.containers[0][memory].limits: Invalid value: "2Mi": must be less than or']),
    (mounted(recursiveReadOnly="Enabled", mountPropagation="HostToContainer"),
     [f"{CONTAINER}.volumeMounts.recursiveReadOnly: Forbidden: may only be specified when readOn",
      f"{CONTAINER}.volumeMounts.recursiveReadOnly: Forbidden: may only be specified when mountP"]),
    (pod(box(volumeMounts=[{"name": "v", "mountPath": "/a"}],
             volumeDevices=[{"name": "v", "devicePath": "/a"}]),
         volumes=[{"name": "v", "emptyDir": {}}]),
     [f'{CONTAINER}.volumeMounts[0].name: Invalid value: "v": must not already exist in volumeDe',
      f'{CONTAINER}.volumeMounts[0].mountPath: Invalid value: "/a": must not already exist as a p',
      f'{CONTAINER}.volumeDevices[0].name: Invalid value: "v": can only use volume source type of',
      f'{CONTAINER}.volumeDevices[0].name: Invalid value: "v": must not already exist in volumeMo',
      f'{CONTAINER}.volumeDevices[0].devicePath: Invalid value: "/a": must not already exist as']),
    (pod(box(restartPolicy="Always", restartPolicyRules=[
        {"action": "Restart", "exitCodes": {"operator": "In", "values": [1] * 256}}] * 21)),
     [f"{CONTAINER}.restartPolicyRules: Too many: 21: must have at most 20 items",
      *[f"{CONTAINER}.restartPolicyRules[{n}].exitCodes.values: Too many: 256" for n in range(21)]]),
    (pod(initContainers=[box(name="a"), box(name="a", resizePolicy=[
        {"resourceName": "cpu", "restartPolicy": "RestartContainer"}])]),
     ['spec.initContainers[1].name: Duplicate value: "a"',
      'spec.initContainers[1].resizePolicy[0].restartPolicy: Invalid value: "RestartContainer"']),
    (pod(box(env=[{"name": "a", "valueFrom": {"fileKeyRef": {
        "key": "k", "path": "p", "volumeName": "v"}}}]),
        volumes=[{"name": "v", "secret": {"secretName": "s"}}]),
     [f'{CONTAINER}.env[0].valueFrom.fileKeyRef.volumeName: Invalid value: "v": referenced volume']),
    (pod(volumes=[{"name": "v", "projected": {"sources": [
        {"serviceAccountToken": {"path": "p", "expirationSeconds": 600}}]}}]),
     ["spec.volumes[0].projected.sources[0].serviceAccountToken: Forbidden: must not be specified"]),
    (pod(tolerations=[{"key": "a", "operator": "Lt", "value": "1"}]),
     ['spec.tolerations[0].operator: Unsupported value: "Lt": supported values: "Equal", "Exists"']),
    (pod(resourceClaims=[{"name": "a", "resourceClaimName": "b"}] * 2),
     ['spec.resourceClaims[1].name: Duplicate value: "a"']),
    (pod(resourceClaims=[{"name": "a", "resourceClaimName": "b", "resourceClaimTemplateName": "c"}]),
     ['spec.resourceClaims[0]: Invalid value: {"Name":"a"']),
    (pod(affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "t", "matchLabelKeys": ["a"], "mismatchLabelKeys": ["a"],
         "labelSelector": {"matchLabels": {"a": "b"},
                           "matchExpressions": [{"key": "a", "operator": "Exists"}]}}]}}),
     ["spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0][0]: Invalid va",
      "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].matchLabelKeys"]),
]  # fmt: skip


@pytest.mark.parametrize(("value", "begins"), CASES)
def test_what_is_wrong_is_told_in_the_order_of_upstream(value, begins):
    value = {"metadata": {"name": "p"}, **value}
    strategy = PodStrategy()
    strategy.default(value)
    found = [str(error) for error in strategy.validate(value)]
    assert len(found) == len(begins), found
    for error, begin in zip(found, begins, strict=True):
        assert error.startswith(begin)
