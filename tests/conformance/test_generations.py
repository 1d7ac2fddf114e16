"""Every shipped document of the prototypes through the server, with stock kubectl.

Each file is applied as the tolerant reader mends it, shown and deleted again. `REFUSED` names what
this cluster does not accept, with the error that kubectl shows.
"""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from dralab.cluster import Cluster, Options
from dralab.prototypes.generations import GENERATIONS
from dralab.prototypes.repair import repaired
from transcripts import kubectls

DATA = Path(__file__).parents[2] / ".." / "shared" / "testdata"
KUBECTLS = kubectls()[:1]
pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(not DATA.is_dir(), reason="the shared test data are not here"),
    pytest.mark.skipif(
        not KUBECTLS, reason="no kubectl on the PATH, and DRALAB_KUBECTL names none"
    ),
]
# kind → what kubectl says: in this cluster nobody defines these kinds of configuration.
REFUSED = {
    "IPNetwork": 'no matches for kind "IPNetwork" in version "fabric.example.com/v1alpha1"',
    "GPUSharingConfig": 'no matches for kind "GPUSharingConfig" in version "gpu.example.com/v1alpha1"',
}
# A core/v1 pod that names a claim in upper case: only the older kinds themselves may be called so.
REFUSED_OBJECTS = {
    ("dra-evolution", "pod-one-container-shared-split-allocation-gpus", "Pod"): (
        "spec.resourceClaims[0].resourceClaimName: Invalid value"
    ),
}
FOLDERS = {
    "k8srm-prototype": ("k8srm", ("v1", "k8srm")),
    "k8srm-prototype-historic": ("k8srm", ("v1", "k8srm")),
    "dra-evolution": ("evolution", ("evolution",)),
}


def files(folder):
    return [
        path
        for path in sorted((DATA / folder).glob("*.yaml"))
        if path.stem != "pod-spec-examples"  # snippets, not one YAML document
    ]


def objects(path, api):
    for item in yaml.safe_load_all(path.read_text()):
        if api == "k8srm":
            yield item  # as its authors wrote it
            continue
        mended, left = repaired(item, GENERATIONS[api].read(item), api)
        assert not left
        yield from mended


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_document_goes_through_the_server(folder, tmp_path):
    api, profiles = FOLDERS[folder]
    environment = {"HOME": str(tmp_path), "PATH": os.environ.get("PATH", "")}
    seen = 0
    with Cluster(Options(profiles=profiles)) as cluster:

        def kubectl(*arguments):
            return subprocess.run(
                [KUBECTLS[0], f"--kubeconfig={cluster.kubeconfig}", *arguments],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )

        for path in files(folder):
            good = []
            for item in objects(path, api):
                target = tmp_path / "object.yaml"
                target.write_text(yaml.safe_dump(item))
                seen += 1
                why = REFUSED.get(item["kind"]) or REFUSED_OBJECTS.get(
                    (folder, path.stem, item["kind"])
                )
                if why:
                    refused = kubectl("apply", "-f", str(target))
                    assert refused.returncode == 1
                    assert why in refused.stderr
                else:
                    # A uid of the client's own is ignored when an object is made, and a
                    # precondition from then on.
                    item["metadata"].pop("uid", None)
                    # The claim with a result is kept by its finalizer: nobody here takes it off.
                    item["metadata"].pop("finalizers", None)
                    good.append(item)
            target = tmp_path / "file.yaml"
            target.write_text(yaml.safe_dump_all(good))
            applied = kubectl("apply", "-f", str(target))
            assert applied.returncode == 0, (path.name, applied.stderr)
            again = kubectl("apply", "-f", str(target))
            assert again.returncode == 0, (path.name, again.stderr)
            shown = kubectl("get", "-f", str(target))
            assert shown.returncode == 0, (path.name, shown.stderr)
            # dra-evolution names one class twice: the second is gone with the first.
            gone = kubectl("delete", "-f", str(target), "--wait=false", "--ignore-not-found")
            assert gone.returncode == 0, (path.name, gone.stderr)
    assert seen > 10


@pytest.mark.parametrize(
    "command",
    [
        ["api-resources"],
        ["get", "nodes"],
        ["get", "ns"],
        ["version"],
        ["explain", "devicedriver"],
        ["explain", "devicepool.spec.devices"],
        ["get", "dc,dp,dcl,ddr"],
    ],
)
def test_kubectl_works_without_a_spurious_error(command, tmp_path):
    with Cluster() as cluster:
        result = subprocess.run(
            [KUBECTLS[0], f"--kubeconfig={cluster.kubeconfig}", *command],
            env={"HOME": str(tmp_path), "PATH": os.environ.get("PATH", "")},
            capture_output=True,
            text=True,
            check=False,
        )
    assert result.returncode == 0
    # A kubectl of another minor version says so, and nothing is found in an empty cluster.
    told = [
        line
        for line in result.stderr.splitlines()
        if not line.startswith(("WARNING: version difference", "No resources found"))
    ]
    assert told == []
