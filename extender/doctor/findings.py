"""Findings: what a check is, and what checks find in the facts.

A check with an unread part is not run, and the report says so: what was not read is neither good nor bad.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from extender.doctor.facts import Facts, Part


class Severity(StrEnum):
    MISTAKE = "mistake"
    """It breaks something that Escher promises, or will break it."""
    NOTE = "note"
    """It may be intended."""


class Found(NamedTuple):
    subject: str
    """Its subject: a file and a field, or an object."""
    wrong: str
    """What is wrong, with field and value."""
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
    """The checks that were not run because of it."""


@dataclass(frozen=True, slots=True)
class Report:
    findings: tuple[Finding, ...]
    """Mistakes first, otherwise in the order of the checks."""
    skipped: tuple[Skipped, ...]

    @property
    def mistakes(self) -> int:
        return sum(each.severity is Severity.MISTAKE for each in self.findings)


def examine(facts: Facts, checks: Iterable[Check]) -> Report:
    """What is wrong, and what was not examined."""
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
