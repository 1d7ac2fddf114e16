"""Every code of explanations has a case: a scene, or a test that names it."""

import re
from pathlib import Path

from dralab.explanation.codes import CODES

TESTS = Path(__file__).parents[1]
SCENES = TESTS / "cli" / "scenes"


def test_every_code_has_a_case():
    pages = "".join(path.read_text().partition("\n")[0] for path in SCENES.glob("*.txt"))
    tests = "".join(path.read_text() for path in TESTS.rglob("test_*.py") if path != Path(__file__))
    found = set(re.findall(r"DRA\d{3}", pages + tests))
    assert CODES.keys() <= found
