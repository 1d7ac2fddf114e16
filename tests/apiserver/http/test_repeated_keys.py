"""Keys given twice and unknown fields, said in a real server's words and order."""

import pytest

from apiserver.verbs.asking import Asked

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
APPLY, YAML = "application/apply-patch+yaml", "application/yaml"
BEGIN = 'Deployment in version "v1" cannot be handled as a Deployment: strict decoding error: '
REST = (
    '"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},'
    '"spec":{"containers":[{"name":"nn","image":"i"}]}}'
)
WRITTEN = """apiVersion: apps/v1
kind: Deployment
metadata:
  name: d
spec:
  replicas: 2
  replicas: 3
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec:
      containers:
      - name: nn
        image: i
        image: i
"""
SET_TWICE = ('line 7: key "replicas" already set in map', 'line 15: key "image" already set in map')


@pytest.fixture
def ask():
    return Asked()


def written(spec):
    text = '{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{%s,%s}}'
    return (text % (spec, REST)).encode()


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            '"bogus":"f","replicas":2,"replicas":3',
            'unknown field "spec.bogus", duplicate field "spec.replicas"',
        ),
        (
            '"replicas":2,"replicas":3,"bogus":"f"',
            'duplicate field "spec.replicas", unknown field "spec.bogus"',
        ),
        (
            '"zz":1,"zz":2,"replicas":1,"aa":{"b":1,"b":2}',
            'unknown field "spec.zz", unknown field "spec.aa"',
        ),
    ],
)
def test_json_is_complained_of_in_the_order_of_the_text(ask, spec, said):
    status, refused = ask("POST", f"{DEPLOYMENTS}?fieldValidation=Strict", written(spec))
    assert (status, refused["message"]) == (400, BEGIN + said)


def test_yaml_is_complained_of_by_its_lines_and_then_by_its_fields(ask):
    body = WRITTEN.replace(
        "  replicas: 3\n", '  replicas: 3\n  1: x\n  1: y\n  "q q": 3\n'
    ).encode()
    status, refused = ask("POST", f"{DEPLOYMENTS}?fieldValidation=Strict", body, content_type=YAML)
    assert (status, refused["message"]) == (
        400,
        f"{BEGIN}yaml: unmarshal errors:\n  {SET_TWICE[0]}\n  line 9: key 1 already set in map\n"
        '  line 18: key "image" already set in map, '
        'unknown field "spec.1", unknown field "spec.q q"',
    )


def test_json_that_is_called_yaml_is_complained_of_by_its_lines(ask):
    body = written('"replicas":1,"replicas":2')
    status, refused = ask("POST", f"{DEPLOYMENTS}?fieldValidation=Strict", body, content_type=YAML)
    line = 'yaml: unmarshal errors:\n  line 1: key "replicas" already set in map'
    assert (status, refused["message"]) == (400, BEGIN + line)


@pytest.mark.parametrize(
    ("method", "url", "content_type"),
    [("POST", DEPLOYMENTS, YAML), ("PATCH", f"{DEPLOYMENTS}/d", APPLY)],
)
def test_each_line_is_a_warning(ask, method, url, content_type):
    url += "?fieldManager=x&dryRun=All"
    answer = ask.full(
        method, f"{url}&fieldValidation=Warn", WRITTEN.encode(), content_type=content_type
    )
    said = [text for name, text in answer.headers if name == "Warning"]
    assert (answer.status, len(said)) == (201, 2)
    for text, line in zip(said, SET_TWICE, strict=True):
        assert text == '299 - "' + line.replace('"', '\\"') + '"'
    answer = ask.full(
        method, f"{url}&fieldValidation=Ignore", WRITTEN.encode(), content_type=content_type
    )
    assert "Warning" not in dict(answer.headers)


@pytest.mark.parametrize("again", [False, True])
def test_a_strict_apply_is_refused_after_it_was_merged(ask, again):
    url = f"{DEPLOYMENTS}/d?fieldManager=x&fieldValidation=Strict"
    if again:
        assert ask("PATCH", url, written('"replicas":1'), content_type=APPLY)[0] == 201
    status, refused = ask("PATCH", url, WRITTEN.encode(), content_type=APPLY)
    lines = "\n  ".join(["yaml: unmarshal errors:", *SET_TWICE])
    message = f"error strict decoding YAML: error converting YAML to JSON: {lines}"
    assert (status, refused["message"]) == (400, message)
    # Nothing was stored, and what cannot be merged is said first.
    assert ask("GET", f"{DEPLOYMENTS}/d")[0] == (200 if again else 404)
    body = written('"bogus":1,"replicas":1,"replicas":2')
    status, refused = ask("PATCH", url, body, content_type=APPLY)
    assert (status, refused["message"]) == (
        500,
        "failed to create typed patch object (/d; apps/v1, Kind=Deployment): "
        ".spec.bogus: field not declared in schema",
    )


def test_of_a_long_text_repeated_fields_are_named_first(ask):
    spec = '"bogus":"%s","replicas":2,"replicas":3' % ("x" * 70_000)
    status, refused = ask("POST", f"{DEPLOYMENTS}?fieldValidation=Strict", written(spec))
    said = 'duplicate field "spec.replicas", unknown field "spec.bogus"'
    assert (status, refused["message"]) == (400, BEGIN + said)
