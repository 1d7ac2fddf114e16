"""What is wrong with a trial."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TrialViolation:
    """One thing that must not be: the oracle that says so, and a sentence."""

    oracle: str
    text: str

    def __str__(self) -> str:
        return f"{self.oracle}: {self.text}"
