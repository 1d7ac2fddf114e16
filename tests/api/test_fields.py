"""Errors in fields: no more are looked for than are shown."""

from dralab.api import fields
from dralab.api.fields import MAX_ERRORS
from dralab.api.metadata import annotation_problems, label_problems


def test_as_many_problems_are_looked_for_as_are_shown():
    many = {f"!{number}": "" for number in range(5 * MAX_ERRORS)}
    for found in (label_problems(many, "metadata.labels"), annotation_problems(many)):
        assert len(found) == MAX_ERRORS + 1
        error = fields.invalid("ConfigMap", "m", found)
        assert len(error.causes) == MAX_ERRORS
        assert error.message.endswith(", and others]")
