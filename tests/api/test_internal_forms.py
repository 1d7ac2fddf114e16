"""What errors show of an object is written as a real server holds it in memory."""

import pytest

from dralab.api.internal_forms import difference, internal_form, versioned_form
from dralab.api.messages import META


@pytest.mark.parametrize(
    ("type", "value", "shown"),
    [
        ("core.LocalObjectReference", None, {"Name": ""}),
        ("*core.LocalObjectReference", None, None),
        ("[]core.LocalObjectReference", [{"name": "a"}], [{"Name": "a"}]),
        ("map[string]resource.Quantity", {"b": "1", "a": "2"}, {"a": "2", "b": "1"}),
        ("core.Capabilities", {"add": []}, {"Add": [], "Drop": None}),
    ],
)
def test_all_fields_are_shown_by_their_names_in_go(type, value, shown):
    found = internal_form(type, value)
    assert found == shown
    assert not isinstance(found, dict) or list(found) == list(shown)


def test_embedded_structs_are_part_of_their_holder():
    volume = internal_form("core.Volume", {"name": "v", "emptyDir": {"medium": "Memory"}})
    assert (volume["Name"], volume["EmptyDir"]) == ("v", {"Medium": "Memory", "SizeLimit": None})
    template = internal_form("core.PodTemplateSpec", {"metadata": {"labels": {"a": "b"}}})
    assert list(template) == ["labels", "Spec"]


def test_what_a_pod_shares_with_its_host_is_in_its_security_context():
    spec = internal_form("core.PodSpec", {"hostNetwork": True, "containers": []})
    assert spec["SecurityContext"]["HostNetwork"] is True
    assert spec["SecurityContext"]["HostPID"] is False
    assert internal_form("core.PodSpec", {"containers": []})["SecurityContext"] is None


def test_versioned_structs_keep_the_order_of_go_and_leave_out_what_is_empty():
    selector = {"matchExpressions": [{"operator": "Exists"}], "matchLabels": {}}
    assert versioned_form(META + "LabelSelector", selector) == {
        "matchExpressions": [{"key": "", "operator": "Exists"}]
    }
    owner = {"uid": "u", "controller": True, "name": "n"}
    found = versioned_form(META + "OwnerReference", owner)
    assert list(found) == ["apiVersion", "kind", "name", "uid", "controller"]


def test_a_difference_has_three_lines_around_what_changed():
    old = {"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem"}
    new = {**old, "volumeMode": "Block"}
    assert difference("core.PersistentVolumeClaimSpec", old, old) == ""
    lines = difference("core.PersistentVolumeClaimSpec", old, new).splitlines()
    assert lines[0] == "@@ -9,7 +9,7 @@"
    assert [line for line in lines[1:] if line[0] != " "] == [
        '- "VolumeMode": "Filesystem",',
        '+ "VolumeMode": "Block",',
    ]
    assert len(lines) == 9
