"""Harms: what the witness finds, with the rule that was broken and what it saw."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

PART = "a part evicted without proof"
FOREIGN = "another scheduler's pod evicted"
VICTIM = "a victim that must not be taken"
HALF = "half a gang taken"
IN_VAIN = "preempted in vain"
TOO_OFTEN = "preempted too often"
SAME_AGAIN = "the same owner's pod evicted again in its place"
DELETED = "deleted past the budgets"
UNSTATED = "evicted without a stated reason"
VANISHED = "a healthy pod left without a cause"
IN_PART = "a gang in part without a word"
INTERRUPTED = "evicted shortly before the service was killed, and not stated"

HALF_LEFT = "half a gang taken, and the service hindered from taking the rest"
WHOLE_AGAIN = "a part of a gang taken, and the gang made whole again"

RULES = (PART, FOREIGN, VICTIM, HALF, IN_VAIN, TOO_OFTEN, SAME_AGAIN, DELETED, UNSTATED, VANISHED)
WARNINGS = (IN_PART, INTERRUPTED, HALF_LEFT, WHOLE_AGAIN)


@dataclass(frozen=True)
class Harm:
    """`rule`: of RULES or WARNINGS. `pod`: namespace and name (or a gang). `at`: epoch seconds."""

    rule: str
    pod: str
    at: float
    evidence: str

    def __str__(self) -> str:
        when = datetime.fromtimestamp(self.at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
        return f"{when} {self.rule}: {self.pod}: {self.evidence}"
