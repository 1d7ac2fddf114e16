"""Ownership as a real server recorded it: every write of the recorded session, told again."""

import json
from pathlib import Path

import pytest

from dralab.api.schemas import Schemas, custom
from dralab.api.status import ApiError
from dralab.apiserver.managed_fields import FieldManager, apply, update

RECORDED = Path(__file__).parents[3] / "../shared/testdata/apiserver/semantics-v1.36.json"
APPLY = "application/apply-patch+yaml"
STANDARD = Schemas.standard()


def cases():
    if not RECORDED.exists():
        return []
    return json.loads(RECORDED.read_text())["cases"]


def query(path):
    _, _, text = path.partition("?")
    return dict(pair.split("=", 1) for pair in text.split("&") if "=" in pair)


def key_of(obj):
    metadata = obj["metadata"]
    return (obj["apiVersion"], obj["kind"], metadata.get("namespace"), metadata["name"])


class Session:
    """What the recorded server held at each point."""

    def __init__(self):
        self.objects = {}
        self.crds = {}

    def schema(self, api_version, kind):
        return STANDARD.schema_of(api_version, kind) or self.crds.get((api_version, kind))

    def saw(self, answer):
        if not isinstance(answer, dict):
            return
        for obj in answer.get("items") or [answer]:
            if isinstance(obj, dict) and obj.get("kind") and "name" in (obj.get("metadata") or {}):
                self.objects[key_of(obj)] = obj
                if obj["kind"] == "CustomResourceDefinition":
                    for version in obj["spec"]["versions"]:
                        name = (f"{obj['spec']['group']}/{version['name']}",)
                        structural = version["schema"]["openAPIV3Schema"]
                        self.crds[*name, obj["spec"]["names"]["kind"]] = custom(structural)


def told(wanted):
    session = Session()
    for case in cases():
        answer = case.get("answer")
        if isinstance(answer, dict) and case["method"] in {"POST", "PUT", "PATCH"}:
            yield from ((session, case, answer),) if wanted(case, answer) else ()
        if "dryRun" not in case["path"]:
            session.saw(answer)


def entries(obj):
    return sorted(
        ({**entry, "time": "TIME"} for entry in obj["metadata"].get("managedFields", [])),
        key=lambda entry: json.dumps(entry, sort_keys=True),
    )


def writer_of(case, answer):
    base = case["path"].partition("?")[0].rstrip("/").split("/")
    sub = base[-1] if base[-1] in {"status", "token"} else ""
    return FieldManager(
        manager=query(case["path"]).get("fieldManager", "unknown"),
        api_version=answer.get("apiVersion", ""),
        now="2026-01-01T00:00:00Z",
        subresource=sub,
        reset=("spec",) if sub == "status" else ("status",),
    )


# What the server sets after owners are noted: strategies and admission own nothing.
LATER = {
    "Pod": ("tolerations", "priority", "preemptionPolicy"),
    "TokenRequest": ("audiences", "boundObjectRef"),
    "Namespace": ("finalizers",),
    "Service": ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"),
}


def before_admission(answer):
    new = {
        **answer,
        "metadata": {k: v for k, v in answer["metadata"].items() if k != "managedFields"},
    }
    later = LATER.get(answer["kind"], ())
    if "spec" in new:
        new["spec"] = {name: value for name, value in new["spec"].items() if name not in later}
    return new


def ordinary(case, answer):
    return (
        case["status"] in {200, 201}
        and answer.get("kind") not in {"Status", "Scale"}
        and not answer.get("kind", "").endswith("Review")
        and case.get("contentType") != APPLY
        and "name" in (answer.get("metadata") or {})
        and "managedFields" in answer["metadata"]
        and "deletionTimestamp" not in answer["metadata"]
    )


def test_every_ordinary_write_gives_the_recorded_owners():
    count = 0
    wrong = []
    for session, case, answer in told(ordinary):
        live = session.objects.get(key_of(answer))
        if case["method"] == "POST":
            live = None
        new = before_admission(answer) if live is None else answer
        schema = session.schema(answer["apiVersion"], answer["kind"])
        found = update(live, new, schema, writer_of(case, answer))
        if entries({"metadata": {"managedFields": found}}) != entries(answer):
            wrong.append((case["case"], found, answer["metadata"]["managedFields"]))
        count += 1
    if not cases():
        pytest.skip("the recorded session is not beside this checkout")
    assert count >= 40
    assert not wrong, wrong[:3]


def applied(case, answer):
    return case.get("contentType") == APPLY and isinstance(case.get("body"), dict)


def test_every_recorded_apply_gives_the_recorded_object_or_refusal():
    count = 0
    for session, case, answer in told(applied):
        body = case["body"]
        if "apiVersion" not in body or "fieldManager" not in case["path"]:
            continue
        key = (body["apiVersion"], body["kind"], "default", body["metadata"]["name"])
        base = case["path"].partition("?")[0].split("/")
        if case["case"] == "ssa name mismatch":
            continue
        live = session.objects.get(key)
        schema = session.schema(body["apiVersion"], body["kind"])
        writer = writer_of(case, body)
        force = query(case["path"]).get("force") == "true"
        count += 1
        if case["status"] >= 400:
            with pytest.raises(ApiError) as refusal:
                apply(live, body, schema, writer, force=force)
            assert refusal.value.status() == answer, base
            continue
        found = apply(live, body, schema, writer, force=force)
        assert entries(found) == entries(answer), case["case"]
        if live is not None:
            # Defaults come later: all that was applied is there, and all else is as it was.
            assert is_within(found.get("spec"), answer.get("spec")), case["case"]
    if not cases():
        pytest.skip("the recorded session is not beside this checkout")
    assert count > 10


def is_within(part, whole):
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(
            is_within(value, whole.get(name)) for name, value in part.items()
        )
    if isinstance(part, list):
        return (
            isinstance(whole, list) and len(part) == len(whole) and all(map(is_within, part, whole))
        )
    return part == whole
