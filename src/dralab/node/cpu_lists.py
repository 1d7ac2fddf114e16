"""Sets of CPUs as Linux writes them: `0-3,8`."""

import re


def cpus_of(text: str) -> set[int]:
    """Return the CPUs of a list as Linux writes it. ValueError: it is not one.

    >>> sorted(cpus_of("0-2,7"))
    [0, 1, 2, 7]
    """
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        match = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", part.strip())
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if low > high:
            raise ValueError(f"{text!r} is not a list of CPUs")
        found |= set(range(low, high + 1))
    return found
