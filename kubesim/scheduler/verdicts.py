"""Verdicts: why a node does not have a pod, and how kube-scheduler words that no node has it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

LONGEST_NOTE = 1024


class No(NamedTuple):
    """A node's refusal. `unresolvable`: evicting its pods would not help. `plugin`: who says it, "" for an extender."""

    plugin: str
    reasons: tuple[str, ...]
    unresolvable: bool = False


UNKNOWN = No("", (), True)
"""The verdict about a node of which nothing is written down."""


class CannotSchedule(Exception):
    """An attempt has failed on an error, rather than for want of a node. `str()` is what users read."""


class NoNodes(Exception):
    """There is not a single node."""

    def __str__(self) -> str:
        return "no nodes available to schedule pods"


@dataclass
class Diagnosis:
    """What came out of one attempt. `rejectors`: the plugins that refused, for which events are to wake the pod."""

    nodes: dict[str, No] = field(default_factory=dict)
    absent: No = UNKNOWN
    rejectors: dict[str, None] = field(default_factory=dict)
    before: str = ""
    """The message of a plugin that refused the pod before any node was looked at."""
    after: str = ""
    """What preemption has to say."""

    def refuse(self, node: str, verdict: No) -> None:
        self.nodes[node] = verdict
        if verdict.plugin:
            self.rejectors[verdict.plugin] = None

    def of(self, node: str) -> No:
        return self.nodes.get(node, self.absent)

    def message(self, number: int) -> str:
        """`0/4 nodes are available: 1 Insufficient cpu, 3 node(s) were unschedulable. <what preemption says>`."""
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
    """As an event's note may be at most so long."""
    if len(message.encode()) <= LONGEST_NOTE:
        return message
    return message.encode()[: LONGEST_NOTE - 4].decode(errors="ignore") + " ..."
