"""Containers with more problems than are shown: the others are not looked for."""

from dralab.api.core.pod_rules import containers, facts
from dralab.api.fields import MAX_ERRORS


def test_not_all_containers_of_a_pod_are_looked_at():
    spec = {"containers": [{} for _ in range(5 * MAX_ERRORS)]}
    around = facts.Surroundings({}, (), "Always", 30, True, False, None)
    assert MAX_ERRORS < len(containers.containers(spec, "spec", around)) < 2 * MAX_ERRORS
