"""Verdicts: why a node refuses a pod, and kube-scheduler's message if every node refuses it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

LONGEST_NOTE = 1024


class No(NamedTuple):
    """A refusal. `unresolvable`: evictions do not help. `plugin`: "" unless a plugin refused."""

    plugin: str
    reasons: tuple[str, ...]
    unresolvable: bool = False


UNKNOWN = No("", (), True)
"""The verdict about a node without an entry."""


class CannotSchedule(Exception):
    """An attempt ended in an error, not in refusals. `str()` is the text that users read."""


class NoNodes(Exception):
    """The cluster has no node."""

    def __str__(self) -> str:
        return "no nodes available to schedule pods"


@dataclass
class Diagnosis:
    """The result of one attempt. `rejectors`: plugins that refused, whose events wake the pod."""

    nodes: dict[str, No] = field(default_factory=dict)
    absent: No = UNKNOWN
    rejectors: dict[str, None] = field(default_factory=dict)
    before: str = ""
    """The message of a plugin that refused the pod before any node was checked."""
    after: str = ""
    """The message of preemption."""

    def refuse(self, node: str, verdict: No) -> None:
        self.nodes[node] = verdict
        if verdict.plugin:
            self.rejectors[verdict.plugin] = None

    def of(self, node: str) -> No:
        return self.nodes.get(node, self.absent)

    def message(self, number: int) -> str:
        """`0/4 nodes are available: 1 Insufficient cpu, 3 node(s) were unschedulable. <after>`."""
        said = f"0/{number} nodes are available:"
        if self.before:
            said += f" {self.before}."
        else:
            reasons: defaultdict[str, int] = defaultdict(int)
            for verdict in self.nodes.values():
                for reason in verdict.reasons:
                    reasons[reason] += 1
            if len(self.nodes) < number:
                for reason in self.absent.reasons:
                    reasons[reason] += number - len(self.nodes)
            if reasons:
                said += f" {', '.join(sorted(f'{count} {reason}' for reason, count in reasons.items()))}."
        return f"{said} {self.after}" if self.after else said


def shortened(message: str) -> str:
    """The message, cut to the size limit of an event's note."""
    if len(message.encode()) <= LONGEST_NOTE:
        return message
    return message.encode()[: LONGEST_NOTE - 4].decode(errors="ignore") + " ..."
