"""Simulation changes: what a simulation may change in a cluster, one change a value. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from extender.core.names import EphemeralName, GangKey
from extender.core.policies.policy_types import PolicyInForce
from extender.kube.names import NodeName

MOST_NODES = 10_000


@dataclass(frozen=True, slots=True)
class Drained:
    """The node is cordoned; its pods move, except pods that their controller puts there again."""

    node: NodeName


@dataclass(frozen=True, slots=True)
class Uncordoned:
    """The node takes new pods."""

    node: NodeName


@dataclass(frozen=True, slots=True)
class Added:
    """`count` empty nodes like `like`. `own`: label keys whose value is unique to each new node."""

    like: NodeName
    count: int
    own: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ended:
    """The pod is gone, and what it held is free."""

    namespace: str
    pod: str


@dataclass(frozen=True, slots=True)
class Offered:
    """The node has `capacity` units of the ephemeral resource."""

    resource: EphemeralName
    node: NodeName
    capacity: int


@dataclass(frozen=True, slots=True)
class Released:
    """What the claim held is free."""

    namespace: str
    holder: str


@dataclass(frozen=True, slots=True)
class QuorumSet:
    """The gang's quorum is `quorum`."""

    gang: GangKey
    quorum: int


@dataclass(frozen=True, slots=True)
class PolicySet:
    """This is in force of the EscherPolicy; None: nothing is."""

    namespace: str
    name: str
    policy: PolicyInForce | None


SimulationChange = PolicySet | Drained | Uncordoned | Added | Ended | Offered | Released | QuorumSet
