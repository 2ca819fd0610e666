"""Constraints of a pod on pods around it: host ports, pod affinity and anti-affinity, spread.

These are values as the API server states them, translated once at the border. Equal values are one object there, so
that members of a gang share theirs. Preferences are left to kube-scheduler; other requirements are in
`Pod.unknown_asks`, in words, because a planner cannot evaluate them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from extender.kube.label_match import Selector, matches

POLICY_LABEL = "escher.dev/policy:"
"""Prefix of the labels for matched policies. No label in Kubernetes has a colon."""
EVERY_ADDRESS = "0.0.0.0"
"""The address of a host port that states none."""


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port of the node that a container needs for itself."""

    port: int
    protocol: str = "TCP"
    address: str = EVERY_ADDRESS

    def clashes(self, other: HostPort) -> bool:
        """Whether no node can have both."""
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
    """One required term: in, or outside, the topology domains of matching pods."""

    peers: Peers
    topology_key: str
    _hash: int = field(init=False, compare=False, repr=False)
    """Cached, because look-ups are far more frequent than creations."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.peers, self.topology_key)))

    def __hash__(self) -> int:
        return self._hash

    def is_about_others(self, namespace: str) -> bool:
        """Whether the term may select pods of other namespaces."""
        return self.peers.namespaces is None or not self.peers.namespaces <= {namespace}


@dataclass(frozen=True, slots=True)
class Spread:
    """A topology spread constraint with DoNotSchedule. `peers`: counted pods of its namespace."""

    peers: Peers
    topology_key: str
    max_skew: int = 1
    min_domains: int = 1
    respects_affinity: bool = True
    """Whether only nodes count that the pod's node selector and node affinity allow."""
    respects_taints: bool = False
    """Whether only nodes count whose taints the pod tolerates."""
    tasks: int = 0
    """Above 0: the expected pods; no topology domain has more than its even part of them."""


@dataclass(frozen=True, slots=True)
class Constraints:
    """All requirements of a pod on pods around it; None is used for a pod without any."""

    host_ports: tuple[HostPort, ...] = ()
    affinity: tuple[AffinityTerm, ...] = ()
    anti_affinity: tuple[AffinityTerm, ...] = ()
    spread: tuple[Spread, ...] = ()
    beside: tuple[AffinityTerm, ...] = ()
    """As `affinity`, but each term may be satisfied by different pods."""

    def __bool__(self) -> bool:
        return bool(self.host_ports or self.affinity or self.anti_affinity or self.spread or self.beside)

    @property
    def affinities(self) -> tuple[tuple[AffinityTerm, ...], ...]:
        """Groups of terms; the same pods must satisfy all terms of a group."""
        alone = tuple((term,) for term in self.beside)
        return (self.affinity, *alone) if self.affinity else alone

    def apart_from_others(self, namespace: str) -> frozenset[AffinityTerm]:
        """The terms that keep a pod of that namespace apart from pods of other namespaces."""
        terms = self.anti_affinity
        return frozenset([term for term in terms if term.is_about_others(namespace)]) if terms else frozenset()


NO_CONSTRAINTS = Constraints()
