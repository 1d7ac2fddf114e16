"""The options of the audit log, as `dralab apiserver` takes them."""

import pytest
from click.testing import CliRunner

from dralab.cli._serving import AuditFlags
from dralab.cli.main import main

POLICY = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"


def audit_of(policy, path):
    return AuditFlags(
        audit_policy_file=policy,
        audit_log_path=path,
        audit_log_maxsize=100,
        audit_log_maxbackup=10,
    ).opener()


def test_a_policy_opens_a_log(tmp_path):
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    opened = audit_of(policy, str(tmp_path / "audit.log"))
    sink = opened().sink
    sink.write(b"{}\n")
    sink.close()
    assert (tmp_path / "audit.log").read_bytes() == b"{}\n"
    assert audit_of(None, "") is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--audit-log-path", "-"], "--audit-log-path needs --audit-policy-file"),
        (["--audit-policy-file", "policy.yaml"], "--audit-policy-file needs --audit-log-path"),
        (
            ["--audit-policy-file", "broken.yaml", "--audit-log-path", "-"],
            "broken.yaml: rules[0].level: 'All' must be one of",
        ),
    ],
)
def test_half_of_it_is_refused(tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "broken.yaml").write_text(POLICY.replace("Metadata", "All"))
    found = CliRunner().invoke(main, ["apiserver", "--data", ":memory:", *words])
    assert found.exit_code == 2
    assert message in found.stderr
