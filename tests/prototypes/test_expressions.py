"""The CEL environments of the prototypes, with the cases of their authors and our corrections."""

import pytest

from dralab.allocation.problem import Attribute
from dralab.prototypes.evolution import expressions as evolution
from dralab.prototypes.k8srm import expressions as k8srm
from dralab.prototypes.k8srm.reading import attributes


def one(name, **value):
    return {"name": name, **value}


DEVICE = attributes(
    [
        one("vendor", stringValue="example.com"),
        one("model", stringValue="pool-model"),
        one("bandwidth", quantityValue="1G"),
        one("memory", quantityValue="10Gi"),
        one("fw", semVerValue="1.10.0"),
        one("n", intValue=3),
        one("pcie-root", stringValue="r0"),
    ]
) | attributes([one("model", stringValue="dev-model")])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("device.model == 'dev-model'", True),
        ("device.model == 'pool-model'", False),
        ("has(device.nope)", False),
        ("'vendor' in device", True),
        ("has(device.nope) && device.nope == 1", False),
        ("device['pcie-root'] == 'r0'", True),
        ("device.n > 2", True),
        ("device.n == 3.0", True),
        ("device.fw == '1.10.0'", True),
        ("device.fw >= '1.9.0'", True),
        ("'1.9.0' < device.fw", True),
        ("device.bandwidth == '1G'", True),
        ("device.bandwidth >= '1000M'", True),
        ("device.bandwidth != '1000M'", False),
        ("device.memory >= '10Gi'", True),
        ("device.memory > '10Gi'", False),
        ("device.bandwidth in ['10G', '1000M']", True),
        ("device.memory.isGreaterThan(quantity('1Gi'))", True),
        ("device.vendor == 'example.com' && device.model == 'dev-model'", True),
        ("device.vendor == 'example.org'", False),
    ],
)
def test_k8srm_expressions(text, expected):
    assert k8srm.K8srmExpressions().get(text).value(DEVICE) is expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("device.nope == 'x'", "no such key: nope"),
        ("device.pcie-root", "undeclared reference to 'root'"),
        ("device.bandwidth = '1G'", "Syntax error"),
        ("device.vendor", "must be bool"),
    ],
)
def test_k8srm_expressions_that_have_no_answer(text, message):
    with pytest.raises(ValueError, match=message):
        k8srm.K8srmExpressions().get(text).value(DEVICE)


def test_an_assignment_suggests_a_comparison():
    [finding] = k8srm.findings("device.bandwidth = '1G'", "spec.constraints")
    assert "did you mean == ?" in finding.message


NAMED = {
    "name": Attribute("quantity", ("1",)),
    "b": Attribute("bool", (True,)),
    "s": Attribute("string", ("fish",)),
}


def value(text, driver="", items=NAMED, **options):
    return evolution.EvolutionExpressions(**options).get(text).value(driver, items)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true", True),
        ("false", False),
        ('device.quantityAttributes["name"].isGreaterThan(quantity("0"))', True),
        ('device.boolAttributes["b"]', True),
        ('device.stringAttributes["s"] == "fish"', True),
        (
            'device.quantityAttributes["name"].isGreaterThan(quantity("0")) && device.boolAttributes["b"] && device.stringAttributes["s"] == "fish"',
            True,
        ),
        ('device.quantityAttributes["no-such-attr"].isGreaterThan(quantity("0"))', False),
        ("device.stringAttributes['nope'] == ''", True),
        ("device.versionAttributes['nope'] == semver('0.0.0')", True),
        ("device.attributes['nope'] == null", True),
        ("'nope' in device.attributes", False),
        ("'s' in device.attributes", True),
        ("device.attributes['name'].compareTo(quantity('1')) >= 0", True),
    ],
)
def test_evolution_expressions(text, expected):
    assert value(text) is expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("?!", "Syntax error"),
        ('device.quantityAttributes["no-such-attr"]', "must evaluate to bool"),
        ("device.quantityAttributes['name'] > quantity('1Gi')", "no matching overload"),
        ("1 == 1.0", "no matching overload"),
        ("1 + 1", "must evaluate to bool"),
        ("isSemver([1, 2, 3])", "no matching overload"),
        ("device.attributes['s'] >= 10", "no such overload"),
        ("semver('v1.0').major() == 1", "No Major.Minor.Patch elements found"),
    ],
)
def test_evolution_expressions_that_have_no_answer(text, message):
    with pytest.raises(ValueError, match=message):
        value(text)


def test_a_missing_key_is_an_error_only_when_strict():
    text = 'device.quantityAttributes["no-such-attr"].isGreaterThan(quantity("0"))'
    with pytest.raises(ValueError, match="no such key: no-such-attr"):
        value(text, strict=True)


def test_names_belong_to_the_domain_of_their_driver():
    items = {"foozer.example.com/model": Attribute("string", ("m",))}
    assert value(
        "device.stringAttributes['foozer.example.com/model'] == 'm'", "foozer.example.com", items
    )
    assert value(
        "device.attributes['foozer.example.com/model'] == 'm'", "foozer.example.com", items
    )
    assert not value("device.stringAttributes['model'] == 'm'", "foozer.example.com", items)
    assert value(
        "device.stringAttributes['model.foozer.example.com'] == 'm'", "foozer.example.com", items
    )


def test_a_suffix_of_the_expression_stands_for_the_driver():
    named = {"name.dra.example.com": Attribute("bool", (True,))}
    assert value('device.boolAttributes["name"]', items=named, suffix="dra.example.com")
    both = {"dra.example.com/name": Attribute("bool", (True,))}
    assert value('device.boolAttributes["name"]', "dra.example.com", both, suffix="dra.example.com")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('semver("1.2.3") == semver("1.2.3")', True),
        ('semver("1.2.3") == semver("1.0.0")', False),
        ('isSemver("1.2.3-beta.1+build.1")', True),
        ('isSemver("v1.0")', False),
        ('semver("1.0.0").isLessThan(semver("1.2.3"))', True),
        ('semver("1.0.0").isLessThan(semver("1.0.0"))', False),
        ('semver("1.2.3").isGreaterThan(semver("1.0.0"))', True),
        ('semver("1.0.0").isGreaterThan(semver("1.0.0"))', False),
        ('semver("1.2.3").compareTo(semver("1.2.3")) == 0', True),
        ('semver("1.0.0").compareTo(semver("1.2.3")) == -1', True),
        ('semver("1.2.3").compareTo(semver("1.0.0")) == 1', True),
        ('semver("1.2.3").major() == 1', True),
        ('semver("1.2.3").minor() == 2', True),
        ('semver("1.2.3").patch() == 3', True),
        ('semver("4.2.1-gen3").isLessThan(semver("4.2.1"))', True),
    ],
)
def test_versions(text, expected):
    assert value(text) is expected
