"""The order of API versions: stable before beta before alpha, newer ones first.

Source: k8s.io/apimachinery `pkg/version` (CompareKubeAwareVersionStrings).
"""

import re
from typing import Final

FORM: Final = re.compile(r"v(0|[1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?")
STABLE, BETA, ALPHA, OTHER = range(4)
STAGES: Final = {None: STABLE, "beta": BETA, "alpha": ALPHA}


def preference(version: str) -> tuple[int, int, int, str]:
    """Return the key by which versions are sorted, the preferred one first.

    >>> sorted(["v1alpha1", "other", "v2", "v1beta2", "v1beta10", "v10"], key=preference)
    ['v10', 'v2', 'v1beta10', 'v1beta2', 'v1alpha1', 'other']
    """
    found = FORM.fullmatch(version)
    if found is None:
        return OTHER, 0, 0, version
    number, stage, revision = found.groups()
    return STAGES[stage], -int(number), -int(revision or 0), version


def is_stable(version: str) -> bool:
    """Return whether a version is neither alpha nor beta.

    >>> is_stable("v1"), is_stable("v1beta1")
    (True, False)
    """
    return preference(version)[0] == STABLE
