import pytest

from dralab.contracts.cdi import CdiDevice, CdiError, CdiSpec, ContainerEdits, read, write
from dralab.contracts.cdi_cache import CdiCache, ContainerConfig, FileDirectory, MemoryDirectory

ENV = ContainerEdits(env=("A=1",))


def spec(*names, kind="example.com/gpu", edits=ENV, **more):
    return CdiSpec(kind=kind, devices=tuple(CdiDevice(name, edits) for name in names), **more)


@pytest.mark.parametrize(
    ("made", "version"),
    [
        (spec("gpu0"), "0.3.0"),
        (
            spec(
                "gpu0",
                edits=ContainerEdits(
                    mounts=({"hostPath": "/a", "containerPath": "/b", "type": "bind"},)
                ),
            ),
            "0.4.0",
        ),
        (spec("0"), "0.5.0"),
        (
            spec(
                "gpu0",
                edits=ContainerEdits(device_nodes=({"path": "/dev/a", "hostPath": "/dev/b"},)),
            ),
            "0.5.0",
        ),
        (spec("gpu0", annotations={"a": "b"}), "0.6.0"),
        (spec("gpu0", kind="example.com/g.p"), "0.6.0"),
        (spec("gpu0", edits=ContainerEdits(additional_gids=(4,))), "0.7.0"),
        (
            spec(
                "gpu0", edits=ContainerEdits(net_devices=({"hostInterfaceName": "a", "name": "b"},))
            ),
            "1.1.0",
        ),
    ],
)
def test_a_spec_has_the_least_version_for_what_it_uses_and_reads_back(made, version):
    assert made.version == version
    assert read(write(made)) == made


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{cdiVersion: 0.3.0, kind: a/b, devices: []}", "invalid spec, no devices"),
        ("{cdiVersion: 9.9.9, kind: a/b, devices: []}", 'unknown version "9.9.9"'),
        ("{cdiVersion: 0.3.0, kind: a/b, extra: 1, devices: []}", 'unknown field "extra"'),
        ("{cdiVersion: 0.3.0, kind: ab, devices: [{name: x, containerEdits: {env: [A=1]}}]}", 'invalid kind "ab"'),
        ("{cdiVersion: 0.3.0, kind: a/b, devices: [{name: x, containerEdits: {}}]}", "empty device edits"),
        ("{cdiVersion: 0.3.0, kind: a/b, devices: [{name: x, containerEdits: {env: [A]}}]}", 'invalid environment variable "A"'),
        ("{cdiVersion: 0.3.0, kind: a/b, devices: [{name: x, containerEdits: {env: [A=1]}}, {name: x, containerEdits: {env: [A=1]}}]}", 'multiple device "x"'),
        ("{cdiVersion: 0.3.0, kind: a/b, devices: [{name: 0x, containerEdits: {env: [A=1]}}]}", "at least v0.5.0"),
        ("{cdiVersion: 0.3.0, cdiVersion: 0.3.0}", "appears twice"),
        ("[", "invalid spec"),
        ("{cdiVersion: 0.3.0, kind: a/b, annotations: x, devices: []}", '"annotations" of the spec cannot be'),
        ("{cdiVersion: 0.3.0, kind: a/b, devices: [{name: x, containerEdits: {hooks: [{hookName: [1]}]}}]}", '"hookName" of a hook cannot be [1]'),
        ("{cdiVersion: 0.3.0, kind: a/b, devices: [{name: x, containerEdits: {deviceNodes: [{path: /x, permissions: [{}]}]}}]}", '"permissions" of a device node cannot be'),
        ("{cdiVersion: 0.3.0, kind: a/b, devices: [{name: x, containerEdits: {mounts: [{options: [1]}]}}]}", '"options" of a mount cannot be'),
        ("{cdiVersion: 0.3.0, kind: a/b, devices: [{name: x, containerEdits: {additionalGids: [a]}}]}", '"additionalGids" of the edits cannot be'),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_with_a_reason(text, why):
    with pytest.raises(CdiError) as caught:
        read(text)
    assert why in str(caught.value)


def test_later_edits_win_and_the_containers_own_variables_lose():
    directory = MemoryDirectory()
    edits = ContainerEdits(env=("A=2", "B=3"))
    directory.write("x.yaml", spec("gpu0", edits=edits))
    config = ContainerConfig(env={"A": "own", "Z": "z"})
    CdiCache([directory]).inject(config, ["example.com/gpu=gpu0", "example.com/gpu=gpu0"])
    assert config.env == {"A": "2", "Z": "z", "B": "3"}


def test_one_missing_device_changes_nothing():
    directory = MemoryDirectory()
    directory.write("x.yaml", spec("gpu0"))
    config = ContainerConfig()
    with pytest.raises(
        CdiError, match=r"unresolvable CDI devices example.com/gpu=b, example.com/gpu=c"
    ):
        CdiCache([directory]).inject(
            config, ["example.com/gpu=gpu0", "example.com/gpu=b", "example.com/gpu=c"]
        )
    assert config == ContainerConfig()


def test_the_later_directory_wins_and_equals_conflict(tmp_path):
    low, high = FileDirectory(tmp_path / "etc"), FileDirectory(tmp_path / "run")
    low.write("a.yaml", spec("gpu0"))
    high.write("a.yaml", spec("gpu0", edits=ContainerEdits(env=("A=high",))))
    cache = CdiCache([low, high])
    config = ContainerConfig()
    cache.inject(config, ["example.com/gpu=gpu0"])
    assert config.env == {"A": "high"}
    high.write("b.yaml", spec("gpu0"))
    cache.refresh()
    assert cache.devices == []
    assert any("conflicting device" in error for error in cache.errors.values())


def test_a_bad_file_hides_no_other_file(tmp_path):
    place = FileDirectory(tmp_path)
    place.write("good.yaml", spec("gpu0"))
    (tmp_path / "bad.yaml").write_text("nonsense: true")
    cache = CdiCache([place])
    assert cache.devices == ["example.com/gpu=gpu0"]
    assert list(cache.errors) == [str(tmp_path / "bad.yaml")]
    place.remove("good.yaml")
    place.remove("good.yaml")
    cache.refresh()
    assert cache.devices == []


def test_mounts_are_sorted_by_depth_and_replaced():
    config = ContainerConfig(mounts=[{"hostPath": "", "containerPath": "/a/b"}])
    directory = MemoryDirectory()
    mounts = (
        {"hostPath": "/x", "containerPath": "/a/b"},
        {"hostPath": "/y", "containerPath": "/a"},
    )
    directory.write("x.yaml", spec("gpu0", edits=ContainerEdits(mounts=mounts)))
    CdiCache([directory]).inject(config, ["example.com/gpu=gpu0"])
    assert [m["hostPath"] for m in config.mounts] == ["/y", "/x"]
