"""What requests of dra-evolution mean, on a few devices of our own."""

from dralab.cli._older import reason_of
from dralab.prototypes.evolution.kinds import API_VERSION
from dralab.prototypes.generations import GENERATIONS
from dralab.prototypes.placement import PlacedPod

GENERATION = GENERATIONS["evolution"]


def item(kind, name, **fields):
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, **fields}


def pool(*models):
    devices = [
        {"name": f"d{n}", "attributes": [{"name": "model", "string": model}]}
        for n, model in enumerate(models)
    ]
    spec = {"driverName": "toys.example.com", "nodeName": "node-a", "devices": devices}
    return item("ResourcePool", "pool", spec=spec)


def claim(*requests, name="shape"):
    return item("ResourceClaim", name, spec={"requests": list(requests)})


def of_model(model, name="a"):
    text = f"device.stringAttributes['toys.example.com/model'] == '{model}'"
    return {"name": name, "requirements": [{"deviceSelector": text}]}


def pod(request="", entries=("shape",)):
    uses = [{"name": entries[0]} | ({"requestName": request} if request else {})]
    container = {"name": "c", "resources": {"claims": uses}}
    claims = [{"name": name, "resourceClaimName": name} for name in entries]
    return item("Pod", "p", spec={"containers": [container], "resourceClaims": claims})


def answer(*objects):
    reports = [GENERATION.read(each) for each in objects]
    assert [str(f) for r in reports for f in r.findings if f.level == "invalid"] == []
    world = GENERATION.cluster([report.document for report in reports])
    placed = world.place(world.pods()[0])
    if isinstance(placed, PlacedPod):
        return [device.device for device in placed.devices]
    return placed.reason or reason_of(world, placed).text


def findings(*objects):
    reports = GENERATION.read_all(objects)
    return [str(f) for r in reports for f in r.findings if f.level == "invalid"]


def test_a_request_of_requirements_alone_gets_a_device_of_any_class():
    assert answer(pool("a", "b"), claim(of_model("b")), pod()) == ["d1"]
    refused = answer(pool("a", "b"), claim(of_model("c")), pod())
    assert refused.startswith('p waits: no published device has model "c"')


def test_a_request_that_a_container_names_must_be_in_its_claim():
    objects = (pool("a"), claim(of_model("a", name="first")))
    assert answer(*objects, pod("first")) == ["d0"]
    path = "spec.containers[0].resources.claims[0].requestName"
    text = f'{path}: the claim has no request "second"; it has first'
    assert answer(*objects, pod("second")) == text
    assert findings(*objects, pod("second")) == [text]
    spec = {"spec": {"requests": [{"name": "first", "deviceClassName": "toy"}]}}
    made = pod("second")
    made["spec"]["resourceClaims"] = [{"name": "shape", "resourceClaimTemplateName": "shape"}]
    assert findings(item("ResourceClaimTemplate", "shape", spec=spec), made) == [text]


def test_a_claim_is_named_once_by_a_pod():
    twice = pod()
    twice["spec"]["resourceClaims"].append({"name": "again", "resourceClaimName": "shape"})
    assert findings(twice) == ['spec.resourceClaims[1].resourceClaimName: "shape" appears twice']


def test_an_explanation_names_the_values_and_attributes_that_there_are():
    page = answer(pool("a", "b"), claim(of_model("A")), pod())
    assert "model: a (1), b (1)" in page
    assert "did you mean 'a'?" in page
    wrong = of_model("a")
    wrong["requirements"][0]["deviceSelector"] = "device.stringAttributes['model'] == 'a'"
    page = answer(pool("a", "b"), claim(wrong), pod())
    assert 'no published device has attribute "model"' in page
    assert "did you mean 'toys.example.com/model'?" in page
