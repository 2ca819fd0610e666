"""Findings: what a check is, and what checks find in the facts.

A check of which a part could not be read is not carried out, and that is told: what was not looked at is neither good
nor bad.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from extender.doctor.facts import Facts, Part


class Severity(StrEnum):
    MISTAKE = "mistake"
    """It breaks something that Escher promises, or will."""
    NOTE = "note"
    """It may be meant."""


class Found(NamedTuple):
    subject: str
    """What it is about: a file and a field, an object."""
    wrong: str
    """With field and value."""
    mend: str


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    finds: str
    """In a few words, for the table of docs/doctor.md."""
    look: Callable[[Facts], Iterator[Found]]
    needs: tuple[Part, ...]
    severity: Severity = Severity.MISTAKE


class Finding(NamedTuple):
    check: str
    severity: Severity
    subject: str
    wrong: str
    mend: str


class Skipped(NamedTuple):
    part: Part
    why: str
    checks: tuple[str, ...]
    """That were not carried out for it."""


@dataclass(frozen=True, slots=True)
class Report:
    findings: tuple[Finding, ...]
    """Mistakes first, otherwise in the order of the checks."""
    skipped: tuple[Skipped, ...]

    @property
    def mistakes(self) -> int:
        return sum(each.severity is Severity.MISTAKE for each in self.findings)


def examine(facts: Facts, checks: Iterable[Check]) -> Report:
    """What is wrong, and what was not looked at."""
    found: list[Finding] = []
    left_out: dict[Part, list[str]] = {part: [] for part in facts.unread}
    for check in checks:
        missing = [part for part in check.needs if part in facts.unread]
        for part in missing:
            left_out[part].append(check.name)
        if not missing:
            found += (Finding(check.name, check.severity, *each) for each in check.look(facts))
    found.sort(key=lambda each: each.severity is not Severity.MISTAKE)
    skipped = (Skipped(part, why, tuple(left_out[part])) for part, why in facts.unread.items())
    return Report(tuple(found), tuple(skipped))
