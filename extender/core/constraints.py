"""Constraints: what a pod requires of the pods around it: host ports, pod affinity and anti-affinity, topology spread.

Values only, as the API server states them, translated once at the border. Equal ones are one object there, so that
members of a gang share theirs. Preferences are kube-scheduler's own matter and are not here; nor is what a planner
cannot evaluate: that is `Pod.unknown_asks`, in words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from extender.kube.label_match import Selector, matches

POLICY_LABEL = "escher.dev/policy:"
"""How labels begin that pods bear for policies that govern them. A colon: none of Kubernetes' does."""
EVERY_ADDRESS = "0.0.0.0"
"""What a host port without an address means."""


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port of the node that a container wants to itself."""

    port: int
    protocol: str = "TCP"
    address: str = EVERY_ADDRESS

    def clashes(self, other: HostPort) -> bool:
        """Whether no node has room for both."""
        if (self.port, self.protocol) != (other.port, other.protocol):
            return False
        return self.address == other.address or EVERY_ADDRESS in (self.address, other.address)


@dataclass(frozen=True, slots=True)
class Peers:
    """Pods by namespace and label. `namespaces`: None for all."""

    namespaces: frozenset[str] | None
    selector: Selector

    def include(self, namespace: str, labels: Mapping[str, str]) -> bool:
        return (self.namespaces is None or namespace in self.namespaces) and matches(self.selector, labels)


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """One required term: beside such pods, or away from them, where nodes of equal label value are one place."""

    peers: Peers
    topology_key: str
    _hash: int = field(init=False, compare=False, repr=False)
    """It is looked up far more often than made."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.peers, self.topology_key)))

    def __hash__(self) -> int:
        return self._hash

    def is_about_others(self, namespace: str) -> bool:
        """Whether pods of other namespaces may be meant."""
        return self.peers.namespaces is None or not self.peers.namespaces <= {namespace}


@dataclass(frozen=True, slots=True)
class Spread:
    """A topology spread constraint with whenUnsatisfiable DoNotSchedule. `peers`: those that are counted, in the pod's
    own namespace."""

    peers: Peers
    topology_key: str
    max_skew: int = 1
    min_domains: int = 1
    heeds_affinity: bool = True
    """Whether only nodes count that the pod's node selector and node affinity allow."""
    heeds_taints: bool = False
    """Whether only nodes count whose taints the pod tolerates."""
    tasks: int = 0
    """Above 0: how many there will be; no value has more than its even part of them, however many others have."""


@dataclass(frozen=True, slots=True)
class Constraints:
    """All that a pod requires of pods around it; a pod that requires nothing has none of these."""

    host_ports: tuple[HostPort, ...] = ()
    affinity: tuple[AffinityTerm, ...] = ()
    anti_affinity: tuple[AffinityTerm, ...] = ()
    spread: tuple[Spread, ...] = ()
    beside: tuple[AffinityTerm, ...] = ()
    """As `affinity`, each by itself: pods meant by one count for that one, whether the others mean them or not."""

    def __bool__(self) -> bool:
        return bool(self.host_ports or self.affinity or self.anti_affinity or self.spread or self.beside)

    @property
    def affinities(self) -> tuple[tuple[AffinityTerm, ...], ...]:
        """Terms that must hold for the same pods, group by group."""
        alone = tuple((term,) for term in self.beside)
        return (self.affinity, *alone) if self.affinity else alone

    def apart_from_others(self, namespace: str) -> frozenset[AffinityTerm]:
        """Of a pod of that namespace: the terms that keep it apart from pods of other namespaces."""
        return frozenset(term for term in self.anti_affinity if term.is_about_others(namespace))


NO_CONSTRAINTS = Constraints()
