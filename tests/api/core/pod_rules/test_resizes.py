"""What a resize of a pod may change, in the server's words."""

import copy

import pytest

from dralab.api.core.pod_rules.resizes import resize_problems


def resources(cpu="1", memory="1Gi", limit=None):
    found = {"requests": {"cpu": cpu, "memory": memory}}
    return found | ({"limits": {"cpu": limit}} if limit else {})


def pod():
    init = {"name": "i", "image": "x", "resources": resources()}
    main = {"name": "c", "image": "x", "resources": resources(limit="2")}
    other = {"name": "d", "image": "x"}
    spec = {"initContainers": [init], "containers": [main, other]}
    return {"metadata": {"name": "p"}, "spec": spec, "status": {"qosClass": "Burstable"}}


def change(path, value):
    """Return an edit of a pod: a path with dots, and None for what is taken away."""

    def edit(found):
        *parents, last = [int(word) if word.isdigit() else word for word in path.split(".")]
        for word in parents:
            found = found[word]
        if value is None:
            del found[last]
        else:
            found[last] = value

    return edit


MAIN, INIT = "spec.containers.0", "spec.initContainers.0"
EQUAL = {"cpu": "1", "memory": "1Gi"}
POLICY = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
OF_MAIN = "spec.containers[0].resources"
ONLY = "spec: Forbidden: only cpu and memory resources are mutable"


@pytest.mark.parametrize(
    ("edits", "problems"),
    [
        ([change(f"{MAIN}.resources.requests.cpu", "500m")], []),
        ([change(f"{MAIN}.resources.limits.memory", "2Gi")], []),
        ([change(f"{INIT}.resources.requests.cpu", "3")], []),
        (
            [change(f"{MAIN}.resources.requests.cpu", None)],
            [f"{OF_MAIN}.requests: Forbidden: resource requests cannot be removed"],
        ),
        (
            [change(f"{MAIN}.resources.limits", None)],
            [f"{OF_MAIN}.limits: Forbidden: resource limits cannot be removed"],
        ),
        ([change(f"{MAIN}.resources.requests.ephemeral-storage", "1")], [ONLY]),
        ([change(f"{MAIN}.resizePolicy", POLICY)], [ONLY]),
        (
            [change(f"{MAIN}.name", "d"), change("spec.containers.1.name", "c")],
            [
                f"spec.containers[{index}].name: Forbidden: containers may not be renamed or "
                "reordered on resize"
                for index in (0, 1)
            ],
        ),
        (
            [change("spec.initContainers", [])],
            [
                "spec.initContainers: Forbidden: initContainers may not be added or removed on resize"
            ],
        ),
        (
            [
                change(f"{where}.resources", {"requests": EQUAL, "limits": EQUAL})
                for where in (INIT, MAIN, "spec.containers.1")
            ],
            [
                'spec: Invalid value: "Burstable": Pod QOS Class may not change as a result of '
                "resizing"
            ],
        ),
    ],
)
def test_a_resize_changes_cpu_and_memory_alone(edits, problems):
    old, new = pod(), copy.deepcopy(pod())
    for edit in edits:
        edit(new)
    assert [str(each) for each in resize_problems(new, old)] == problems


def test_some_pods_are_never_resized():
    static, windows = pod(), pod()
    static["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    windows["spec"]["os"] = {"name": "windows"}
    for found, whose in ((static, "static"), (windows, "windows")):
        (problem,) = resize_problems(found, found)
        assert f"{whose} pods cannot be resized" in str(problem)


def test_an_init_container_that_would_restart_is_not_resized():
    old = pod()
    old["spec"]["initContainers"][0]["resizePolicy"] = POLICY
    new = copy.deepcopy(old)
    new["spec"]["initContainers"][0]["resources"]["requests"]["cpu"] = "3"
    (problem,) = resize_problems(new, old)
    assert "non-sidecar init containers with a resize policy of RestartContainer" in str(problem)
