"""Transcripts of real kubectls against the server."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from transcripts import environment_for, kubectls, seen, steps_of

TRANSCRIPTS = sorted((Path(__file__).parent / "kubectl").glob("*.txt"))
KUBECTLS = [path for path in kubectls() if path.name not in {"kubectl.1.27", "kubectl.1.28"}]

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(
        not KUBECTLS, reason="no kubectl on the PATH, and DRALAB_KUBECTL names none"
    ),
]


@pytest.mark.parametrize("kubectl", KUBECTLS, ids=lambda path: path.name)
@pytest.mark.parametrize("transcript", TRANSCRIPTS, ids=lambda path: path.stem)
def test_kubectl_shows_what_the_transcript_says(transcript, kubectl, cluster, tmp_path):
    text = transcript.read_text()
    if (wanted := needed(text)) > version_of(kubectl):
        pytest.skip(f"kubectl before 1.{wanted} says it differently")
    environment = environment_for(kubectl, cluster.kubeconfig, tmp_path)
    for step in steps_of(text):
        found = seen(step, tmp_path, environment)
        if step.command:
            assert found == step.lines, f"$ {step.command} ({kubectl.name})"


def needed(text):
    """Return the minor version that a transcript was reviewed from on: `# kubectl 1.31`."""
    found = re.match(r"# kubectl 1\.(\d+)", text)
    return int(found[1]) if found else 0


def version_of(kubectl):
    command = [str(kubectl), "version", "--client", "-o", "json"]
    done = subprocess.run(command, capture_output=True, check=True)
    version = json.loads(done.stdout)["clientVersion"]["gitVersion"]
    return int(re.match(r"v1\.(\d+)", version)[1])


def test_there_are_transcripts():
    assert len(TRANSCRIPTS) > 5
