"""Docstrings: every example runs, and the first sentence is plain."""

import ast
import doctest
import importlib
import pkgutil
import re
import warnings
from pathlib import Path

import pytest

import dralab

OPTIONAL = {"dralab.__main__"}


def modules():
    return sorted(
        found.name
        for found in pkgutil.walk_packages(dralab.__path__, "dralab.")
        if found.name not in OPTIONAL and "._generated" not in found.name
    )


def test_every_example_runs():
    finder = doctest.DocTestFinder(exclude_empty=True)
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    runner = doctest.DocTestRunner(optionflags=flags)
    examples = 0
    for name in modules():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                module = importlib.import_module(name)
            except ImportError as error:
                # An extra that is not installed; what needs it says so by itself.
                if (error.name or "").startswith("dralab"):
                    raise
                continue
        if ">>> " not in Path(module.__file__).read_text():
            continue  # to look at each of its objects takes time
        for case in finder.find(module, name):
            examples += len(case.examples)
            runner.run(case, out=lambda text: pytest.fail(text, pytrace=False))
    assert examples > 100


# What stopped readers who did not know the project.
ODD = re.compile(
    r"told of|\b(?:is|are) told\b(?! apart)|\bbe had\b|there twice|Take it that|all the same\b"
    r"|(?:Return|Yield) what is wrong|(?:Return|Yield) why\b"
)


def first_sentences(source):
    """Yield the line and the first paragraph of each docstring."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, documented) and (text := ast.get_docstring(node)):
            yield getattr(node, "lineno", 1), text.split("\n\n")[0]


@pytest.mark.parametrize(
    "sentence",
    [
        "Return why a name is none.",
        "Note what the peer is told of.",
        "Say what is wrong all the same.",
    ],
)
def test_an_odd_sentence_is_noticed(sentence):
    [(line, text)] = first_sentences(f'def f():\n    """{sentence}"""')
    assert line == 1
    assert ODD.search(text)


def test_docstrings_begin_in_the_words_of_the_field():
    source = Path(dralab.__file__).parent
    odd = [
        f"{path.relative_to(source)}:{line}: {text}"
        for path in sorted(source.rglob("*.py"))
        if ODD.search(code := path.read_text(encoding="utf-8"))
        for line, text in first_sentences(code)
        if ODD.search(text)
    ]
    assert odd == [], "say it in the words of Kubernetes, verb first"
