"""What schedulers and drivers may write into a status, and what not."""

import pytest

from builders import claim, first_of, obj, request
from dralab.api.resource.rules import validate_update
from dralab.values import names

SHARE = "0a1b2c3d-0000-4000-8000-000000000000"
RESULT = {"request": "r", "driver": "d", "pool": "p", "device": "x"}
POD = {"resource": "pods", "name": "p", "uid": "u"}
CONDITION = {
    "type": "Ready", "status": "True", "reason": "Ok", "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}  # fmt: skip
FIRST = "status.devices[0].conditions[0]"
REFERENCE = (
    "must be the name of a request in the claim or the name of a request and a subrequest "
    "separated by '/'"
)


def allocated(*results, **more):
    return {"allocation": {"devices": {"results": list(results or (RESULT,))} | more}}


def with_status(status, *, deleting=False):
    made = claim("c", request("r"), first_of("s", a={}), status=status)
    if deleting:
        made["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return made


def errors(new, old=None, *, deleting=False):
    found = validate_update(with_status(new, deleting=deleting), with_status(old or {}), "status")
    return [str(item) for item in found]


def reporting(*results, **device):
    return allocated(*results) | {"devices": [{"driver": "d", "pool": "p", "device": "x"} | device]}


GOOD = {
    "an allocation": (allocated(), {}),
    "an alternative": (allocated(RESULT | {"request": "s/a"}), {}),
    "a reservation": (allocated() | {"reservedFor": [POD]}, allocated()),
    "deallocation": ({}, allocated()),
    "a report": (
        reporting(
            conditions=[CONDITION],
            data={"a": 1},
            networkData={"ips": ["10.9.8.1/24", "2001:db8::1/64"]},
        ),
        allocated(),
    ),
    "a report of a share": (
        reporting(RESULT | {"shareID": SHARE}, shareID=SHARE),
        allocated(RESULT | {"shareID": SHARE}),
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_status_is_accepted(name):
    new, old = GOOD[name]
    assert errors(new, old) == []


RESULTS = "status.allocation.devices.results"
BAD = {
    "another allocation": (
        allocated(RESULT | {"device": "y"}),
        allocated(),
        [
            'status.allocation: Invalid value: {"Devices":{"Results":[{"Request":"r","Driver":"d",'
            '"Pool":"p","Device":"y","AdminAccess":null,"Tolerations":null,'
            '"BindingConditions":null,"BindingFailureConditions":null,"ShareID":null,'
            '"ConsumedCapacity":null}],"Config":null},"NodeSelector":null,'
            '"AllocationTimestamp":null}: field is immutable'
        ],
    ),
    "33 results": (
        allocated(*[RESULT] * 33),
        {},
        [f"{RESULTS}: Too many: 33: must have at most 32 items"],
    ),
    "a result for no request": (
        allocated(RESULT | {"request": "q"}),
        {},
        [f'{RESULTS}[0].request: Invalid value: "q": {REFERENCE}'],
    ),
    "a share in capitals": (
        allocated(RESULT | {"shareID": SHARE.upper()}),
        {},
        [
            f'{RESULTS}[0].shareID: Invalid value: "{SHARE.upper()}": uid must be in RFC 4122 '
            "normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal "
            "characters"
        ],
    ),
    "a share that is no UUID": (
        allocated(RESULT | {"shareID": "abc"}),
        {},
        [
            f'{RESULTS}[0].shareID: Invalid value: "abc": error validating uid: '
            "invalid UUID length: 3"
        ],
    ),
    "a configuration from nowhere": (
        allocated(config=[{"source": "FromMoon", "opaque": {"driver": "d", "parameters": {}}}]),
        {},
        [
            'status.allocation.devices.config[0].source: Unsupported value: "FromMoon": '
            'supported values: "FromClaim", "FromClass"'
        ],
    ),
    "a node selector without terms": (
        {"allocation": {"nodeSelector": {}}},
        {},
        [
            "status.allocation.nodeSelector.nodeSelectorTerms: Required value: "
            "must have at least one node selector term"
        ],
    ),
    "a reservation without allocation": (
        {"reservedFor": [POD]},
        {},
        ["status.reservedFor: Forbidden: may not be specified when `allocated` is not set"],
    ),
    "a consumer twice": (
        allocated() | {"reservedFor": [POD, POD]},
        allocated(),
        ['status.reservedFor[1]: Duplicate value: "u"'],
    ),
    "257 consumers": (
        allocated() | {"reservedFor": [POD | {"uid": str(i)} for i in range(257)]},
        allocated(),
        ["status.reservedFor: Too many: 257: must have at most 256 items"],
    ),
    "an empty consumer": (
        allocated() | {"reservedFor": [{}]},
        allocated(),
        [f"status.reservedFor[0].{name}: Required value" for name in ("resource", "name", "uid")],
    ),
    "a report of what is not allocated": (
        reporting(RESULT | {"shareID": SHARE}),
        allocated(RESULT | {"shareID": SHARE}),
        ["status.devices[0]: Invalid value: d/p/x: must be an allocated device in the claim"],
    ),
    "nine conditions": (
        reporting(conditions=[CONDITION | {"type": f"C{i}"} for i in range(9)]),
        allocated(),
        ["status.devices[0].conditions: Too many: 9: must have at most 8 items"],
    ),
    "a bad condition": (
        reporting(conditions=[{"type": "", "status": "Maybe"}]),
        allocated(),
        [
            f'{FIRST}.type: Invalid value: "": name part must be non-empty',
            f'{FIRST}.type: Invalid value: "": {names.qualified_problems("")[1]}',
            f'{FIRST}.status: Unsupported value: "Maybe": '
            'supported values: "False", "True", "Unknown"',
            f"{FIRST}.lastTransitionTime: Required value",
            f"{FIRST}.reason: Required value",
        ],
    ),
    "data that is not an object": (
        reporting(data=[]),
        allocated(),
        ['status.devices[0].data: Invalid value: "<value omitted>": must be a valid JSON object'],
    ),
    "bad network data": (
        reporting(
            networkData={
                "interfaceName": "x" * 257,
                "hardwareAddress": "y" * 129,
                "ips": ["10.9.8.1", "10.9.8.1"],
            }
        ),
        allocated(),
        [
            "status.devices[0].networkData.interfaceName: Too long: may not be more than 256 bytes",
            "status.devices[0].networkData.hardwareAddress: Too long: "
            "may not be more than 128 bytes",
            *(
                f'status.devices[0].networkData.ips[{i}]: Invalid value: "10.9.8.1": must be a '
                "valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"
                for i in range(2)
            ),
            'status.devices[0].networkData.ips[1]: Duplicate value: "10.9.8.1"',
        ],
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_status_is_refused_in_the_words_of_a_server(name):
    new, old, expected = BAD[name]
    assert errors(new, old) == expected


def test_a_claim_that_goes_away_loses_reservations_but_gets_none():
    two = allocated() | {"reservedFor": [POD, POD | {"uid": "v"}]}
    one = allocated() | {"reservedFor": [POD]}
    assert errors(one, two, deleting=True) == []
    assert errors(two, one, deleting=True) == [
        "status.reservedFor: Forbidden: new entries may not be added while "
        "`deallocationRequested` or `deletionTimestamp` are set"
    ]


def test_a_rule_has_few_conditions():
    many = {"conditions": [CONDITION | {"type": f"C{i}"} for i in range(9)]}
    rule = obj("DeviceTaintRule", "r", spec={}, status=many)
    assert [str(item) for item in validate_update(rule, rule, "status")] == [
        "status.conditions: Too many: 9: must have at most 8 items"
    ]


def test_the_answer_to_a_pool_question_is_written_once():
    def asked(status):
        made = obj("ResourcePoolStatusRequest", "q", spec={"driver": "d", "limit": 1})
        return made | ({"status": status} if status else {})

    answer = {"poolCount": 2, "pools": [{"driver": "d", "poolName": "p", "generation": 1}]}
    assert validate_update(asked(answer), asked(None), "status") == []
    assert validate_update(asked(answer), asked(answer), "status") == []
    (error,) = validate_update(asked(answer | {"poolCount": 3}), asked(answer), "status")
    assert (error.field, error.detail) == ("status", "field is immutable")
    (error,) = validate_update(
        asked(answer | {"pools": answer["pools"] * 2}), asked(None), "status"
    )
    assert str(error) == "status.pools: Too many: 2: must have at most 1 item"
