"""Every example in a docstring runs and says what it says."""

import doctest
import importlib
import pkgutil
import warnings

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
        for case in finder.find(module, name):
            examples += len(case.examples)
            runner.run(case, out=lambda text: pytest.fail(text, pytrace=False))
    assert examples > 100
