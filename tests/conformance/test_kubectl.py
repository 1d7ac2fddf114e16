"""Transcripts of real kubectls against the server."""

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
    environment = environment_for(kubectl, cluster.kubeconfig, tmp_path)
    for step in steps_of(transcript.read_text()):
        found = seen(step, tmp_path, environment)
        if step.command:
            expected = [line for line in step.lines if not line.startswith("[any]")]
            assert found == expected, f"$ {step.command} ({kubectl.name})"


def test_there_are_transcripts():
    assert len(TRANSCRIPTS) > 5
