"""Objects with more problems than are shown: the others are not looked for."""

from dralab.api import fields
from dralab.api.core.pod_rules import containers, facts
from dralab.api.fields import MAX_ERRORS
from dralab.api.metadata import annotation_problems, label_problems


def test_as_many_problems_are_looked_for_as_are_shown():
    many = {f"!{number}": "" for number in range(5 * MAX_ERRORS)}
    for found in (label_problems(many, "metadata.labels"), annotation_problems(many)):
        assert len(found) == MAX_ERRORS + 1
        error = fields.invalid("ConfigMap", "m", found)
        assert len(error.causes) == MAX_ERRORS
        assert error.message.endswith(", and others]")


def test_not_all_containers_of_a_pod_are_looked_at():
    spec = {"containers": [{} for _ in range(5 * MAX_ERRORS)]}
    around = facts.Surroundings({}, (), "Always", 30, True, False, None)
    assert MAX_ERRORS < len(containers.containers(spec, "spec", around)) < 2 * MAX_ERRORS
