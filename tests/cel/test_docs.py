"""The page about selectors: its examples run and give what they say."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "cel.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS)
def test_an_example_gives_what_its_comment_says(block):
    names: dict[str, object] = {}
    exec(block, names)  # noqa: S102 - it is our own page
    claims = re.findall(r"^((?:selector|program)\.\S.*?) +# (.*)$", block, re.MULTILINE)
    assert claims
    for expression, claim in claims:
        assert claim.startswith(repr(eval(expression, names)))  # noqa: S307 - it is our own page
