"""Volumes that are folders, beside the controllers that bind and reclaim them."""

import pytest

from builders import pod
from dralab.controllers import registry
from dralab.controllers.volume_folders import FOLDERS, VolumeFolders, default_class
from dralab.runtime.resources import EVENTS, PODS, STORAGE_CLASSES, VOLUME_CLAIMS, VOLUMES
from dralab.scheduler.scheduler import Scheduler
from labs import Lab
from smallselectors import SmallEnvironment

PROVISIONED = {"pv.kubernetes.io/provisioned-by": FOLDERS}


@pytest.fixture
def lab(tmp_path):
    made = Lab()
    registry.assemble(made.manager)
    Scheduler(made.manager, SmallEnvironment())
    VolumeFolders(made.manager, tmp_path / "volumes")
    made.add_node("n0")
    made.add(STORAGE_CLASSES, default_class(FOLDERS))
    made.start()
    made.wait(1)
    return made


def claim(name="c", **spec):
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {**wanted, **spec}}


def user(name="p"):
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    return pod(name, volumes=volumes)


def test_the_claim_of_a_pod_gets_a_folder_that_goes_with_it(lab, tmp_path):
    lab.add(VOLUME_CLAIMS, claim())
    lab.wait(5)
    assert not (tmp_path / "volumes").exists(), "nothing is made before a pod needs it"
    lab.add(PODS, user())
    lab.wait(5)
    bound = lab.get(VOLUME_CLAIMS, "c")
    assert bound["status"]["phase"] == "Bound"
    assert bound["spec"]["storageClassName"] == "standard"
    folder = tmp_path / "volumes" / f"pvc-{bound['metadata']['uid']}"
    volume = lab.client.get(VOLUMES, folder.name)
    assert volume["spec"]["hostPath"]["path"] == str(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    (folder / "data").write_text("1")
    lab.client.delete(PODS, "p", "default", options={"gracePeriodSeconds": 0})
    lab.client.delete(VOLUME_CLAIMS, "c", "default")
    lab.wait(5)
    assert not folder.exists()


def test_a_volume_that_only_says_it_was_made_here_costs_no_other_folder(lab, tmp_path):
    precious = tmp_path / "volumes" / "precious"
    precious.mkdir(parents=True)
    for name in ("precious", "pvc-x"):
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": str(precious)},
        }
        lab.add(VOLUMES, {"metadata": {"name": name, "annotations": PROVISIONED}, "spec": spec})
        lab.wait(1)
        lab.client.delete(VOLUMES, name)
        lab.wait(1)
    assert precious.exists()


def test_a_folder_is_not_a_block_device(lab):
    lab.add(VOLUME_CLAIMS, claim(volumeMode="Block"))
    lab.add(PODS, user())
    lab.wait(5)
    said = {(event["reason"], event["message"]) for event in lab.all(EVENTS)}
    assert ("ProvisioningFailed", "a folder cannot be a block device") in said
