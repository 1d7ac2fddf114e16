"""`dralab.open`: every source that it takes, and the answers beside those of the commands."""

import json
import tarfile

import pytest
import yaml
from click.testing import CliRunner

import dralab
from builders import claim, device, device_class, pod, pool, request, worker
from dralab.api.status import ApiError
from dralab.cli.main import main


def objects():
    claims = [claim("one", request("r", "gpu")), claim("two", request("r", "gpu", count=2))]
    return [
        worker("n1"),
        device_class("gpu"),
        *pool("n1", device("d0"), node="n1"),
        *claims,
        pod("fits", claims={"g": "one"}),
        pod("waits", claims={"g": "two"}),
    ]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all(objects()))
    return path


def printed(*arguments):
    return json.loads(CliRunner().invoke(main, [*map(str, arguments), "-o", "json"]).stdout)


def test_an_explanation_is_that_of_the_command(file):
    found = dralab.open(file).explain("waits")
    (wanted,) = printed("explain", "-f", file, "waits")
    assert (found.fits, found.code, found.headline) == (False, wanted["code"], wanted["headline"])
    assert [each.text for each in found.helps] == [each["text"] for each in wanted["helps"]]
    assert {
        key: value for key, value in found.data.items() if key != "text"
    }.keys() == wanted.keys()
    assert found.headline in str(found)
    assert found._repr_html_().startswith("<pre>")


def test_what_fits_has_its_node_and_a_name_may_have_its_namespace():
    lab = dralab.open(objects())
    assert (lab.explain("default/fits").fits, lab.explain("default/fits").node) == (True, "n1")
    with pytest.raises(
        dralab.UnknownObject, match="no pod or claim 'nobody'; what waits: default/"
    ):
        lab.explain("nobody")
    with pytest.raises(dralab.UnknownObject, match="no node 'n7'; known nodes: n1"):
        lab.explain("fits", node="n7")


def test_questions_change_nothing_for_those_after_them():
    lab = dralab.open(objects())
    first = str(lab.explain("waits"))
    assert [each.name for each in lab.allocate() if each.devices] == ["pod default/fits"]
    lab.what_if(add_nodes=1)
    lab.plan()
    assert str(lab.explain("waits")) == first


def test_capacity_is_answered_as_by_the_commands(file):
    lab = dralab.open(file)
    changed = lab.what_if(add_nodes={"n1": 2})
    assert changed.data == printed("what-if", "-f", file, "--add", "n1=2")
    assert changed.nodes == (1, 3)
    assert lab.what_if(add_nodes=2).data == changed.data
    assert lab.plan(["n1"]).data == printed("plan", "nodes", "-f", file, "--shapes", "n1")
    assert lab.defragment("waits").data == printed("plan", "moves", "-f", file, "--for", "waits")
    with pytest.raises(dralab.UnknownObject, match="n9"):
        lab.what_if(remove=["n9"])
    with pytest.raises(dralab.BadInput, match="nothing would change"):
        lab.what_if()


def test_bad_files_are_refused_with_every_mistake(tmp_path):
    bad = tmp_path / "bad.yaml"
    text = "apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: A_}\nspec: {config: 1, x: 1}\n"
    bad.write_text(text)
    with pytest.raises(dralab.BadInput) as caught:
        dralab.open(bad)
    assert len(caught.value.problems) == 2
    assert "bad.yaml:4" in str(caught.value)


def test_a_cluster_of_this_process_is_read_and_files_count_as_applied(file):
    cluster = dralab.SimulatedCluster(nodes=2, drivers=["gpu"])
    lab = dralab.open(cluster)
    assert list(lab.nodes) == ["node-1", "node-2"]
    assert "pod default/waits" in dralab.open(cluster, file).pending


def test_a_kubeconfig_is_known_by_its_content(tmp_path):
    with dralab.Cluster() as cluster:
        path = tmp_path / "config"
        path.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "c", "cluster": {"server": cluster.url}}],
                    "users": [{"name": "u", "user": {}}],
                    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                    "current-context": "x",
                }
            )
        )
        assert list(dralab.open(path, [worker("n5")]).nodes) == ["n5"]


def in_a_folder(tmp_path):
    folder = tmp_path / "dump"
    folder.mkdir()
    for number, obj in enumerate(objects()):
        (folder / f"{number}.yaml").write_text(yaml.safe_dump(obj))
    return folder


def in_an_archive(tmp_path):
    path = tmp_path / "dump.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(in_a_folder(tmp_path), "dump")
    return path


def in_a_snapshot(tmp_path):
    path = tmp_path / "cluster.snapshot"
    done = CliRunner().invoke(main, ["snapshot", "-f", str(in_a_folder(tmp_path)), "-o", str(path)])
    assert done.exit_code == 0, done.output
    return path


@pytest.mark.parametrize("written", [in_a_folder, in_an_archive, in_a_snapshot])
def test_folders_archives_and_snapshots_are_read_alike(written, tmp_path):
    lab = dralab.open(written(tmp_path))
    assert list(lab.nodes) == ["n1"]
    assert lab.explain("waits").code == dralab.open(objects()).explain("waits").code


def test_a_cluster_that_serves_others_is_read():
    with dralab.Cluster() as cluster:
        assert list(dralab.open(cluster, [worker("n5")]).nodes) == ["n5"]


def test_a_fleet_is_generated():
    lab = dralab.open({"h100": 2, "l40s": 1}, [pod("p")])
    assert len(lab.nodes) == 3
    assert lab.explain("p").fits
    assert "waits" in lab._repr_html_()
    assert "3 nodes" in lab._repr_html_()
    with pytest.raises(dralab.UnknownObject, match="no shape 'h900'; known: a100"):
        dralab.open({"h900": 1})


def test_every_answer_shows_itself_in_a_notebook():
    lab = dralab.open(objects())
    answers = [lab.explain("waits"), lab.what_if(add_nodes=1), lab.plan(), lab.defragment("waits")]
    for each in answers:
        shown = each._repr_html_()
        assert shown.startswith("<"), each
        assert "<script" not in shown


def test_what_may_not_be_listed_is_told():
    class Forbidding:
        def __init__(self, client):
            self.inner = client

        def list(self, resource, namespace=""):
            if resource.plural == "persistentvolumes":
                raise ApiError("Forbidden", "no", details={})
            return self.inner.list(resource, namespace)

    cluster = dralab.SimulatedCluster()
    assert dralab.open(cluster).not_judged == []
    cluster.client = Forbidding(cluster.client)
    assert dralab.open(cluster).not_judged == ["volumes"]


def test_an_object_alone_is_one_and_no_fleet():
    lab = dralab.open(objects())
    more = claim("more", request("r", "gpu"))
    found = {each.name: each.why for each in lab.allocate(more)}
    assert found["claim default/more"]
    assert "claim default/more" not in {each.name for each in lab.allocate()}


def test_a_pod_that_runs_without_devices_has_its_node():
    runs = pod("plain") | {"status": {"phase": "Running"}}
    runs["metadata"]["uid"], runs["spec"]["nodeName"] = "u", "n1"
    found = dralab.open([*objects(), runs]).explain("plain")
    assert (found.fits, found.node) == (True, "n1")
    assert str(found) == "pod default/plain runs on n1, without devices"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"add_nodes": -1}, "add_nodes: n1: -1 is not a number of nodes"),
        ({"add_nodes": {"h100": "2"}}, "add_nodes: h100: '2' is not a number of nodes"),
        ({"add_nodes": True}, "add_nodes: n1: True is not a number of nodes"),
        ({"add_nodes": 10**12}, "is not a number of nodes, 1 to 100000"),
    ],
)
def test_a_number_of_nodes_is_checked(change, problem):
    with pytest.raises(dralab.BadInput, match=problem):
        dralab.open(objects()).what_if(**change)


@pytest.mark.parametrize("count", [0, "8", 10**9])
def test_a_fleet_of_no_number_is_refused(count):
    with pytest.raises(dralab.BadInput, match=f"h100: {count!r} is not a number of nodes"):
        dralab.open({"h100": count})


@pytest.mark.parametrize("price", [-1, float("nan"), "2", True])
def test_a_price_is_checked(price):
    lab = dralab.open(objects())
    with pytest.raises(dralab.BadInput, match=f"h100: {price!r} is not a price, 0 to 1,000,000,00"):
        lab.plan({"h100": price})
    with pytest.raises(dralab.BadInput, match=f"budget: {price!r} is not a price"):
        lab.plan("h100", budget=price)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("", "the name of a file is empty"),
        ([1], "object 0: 1 is not an object: give a mapping"),
        ({"kind": "Pod"}, "object 0: metadata.name: None is not a text"),
        ([{"kind": 3, "apiVersion": "v1", "metadata": {"name": "a"}}], "object 0: kind: 3 is not"),
        ([{"kind": "Pod", "apiVersion": "v1", "metadata": []}], "metadata.name: None is not"),
    ],
)
def test_what_is_not_an_object_is_named(given, problem):
    with pytest.raises(dralab.BadInput, match=problem):
        dralab.open(given)


def test_one_name_may_stand_for_several():
    assert dralab.open(objects()).what_if(remove="n1").data["nodes"]["after"] == 0


def test_a_name_that_is_no_text_and_a_file_without_objects_are_named(tmp_path):
    with pytest.raises(TypeError, match="name: 7 is not a text"):
        dralab.open(objects()).explain(7)
    empty = tmp_path / "empty.yaml"
    empty.write_text("---\n")
    with pytest.raises(dralab.BadInput, match=f"{empty}: holds no object"):
        dralab.open(empty)
