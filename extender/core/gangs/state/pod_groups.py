"""PodGroups of scheduler-plugins: the quorum of a gang in a separate object instead of on each pod.

It keeps the groups and the pods that name them, and turns a pod's `GroupAsk` into the ask for a gang. If the kind is
not installed, the label has no meaning and its pods are in no gang.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from extender.core.cluster import Pod
from extender.core.gang_ask import (
    DEFAULT_TIMEOUT,
    GATE_WITHOUT_GANG,
    LARGEST_GANG,
    MIN_MEMBER,
    POD_GROUP_LABEL,
    GangAsk,
    GroupAsk,
    MalformedAsk,
    too_large,
)
from extender.core.names import GangKey
from extender.kube.names import PodUid

GroupName = tuple[str, str]
"""(namespace, name)."""


@dataclass(frozen=True, slots=True)
class PodGroup:
    """A PodGroup, `scheduling.x-k8s.io/v1alpha1`. `timeout` in seconds; None if it has none."""

    namespace: str
    name: str
    min_member: int
    timeout: float | None = None

    @property
    def key(self) -> GroupName:
        return self.namespace, self.name

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class PodGroups:
    """`most_together`: the largest quorum, because all its binds must wait at once; None: no limit."""

    def __init__(self, most_together: int | None = None) -> None:
        self._most_together = most_together
        self._groups: dict[GroupName, PodGroup] | None = None
        """None while the kind is not known to be installed."""
        self._members: dict[GroupName, dict[PodUid, Pod]] = {}
        """Pods by the group that they name, before `resolved`."""
        self._group_of: dict[PodUid, GroupName] = {}
        self._unschedulable: set[PodUid] = set()
        """Pods that were rejected because their group is malformed or missing."""

    # -- groups: each method returns the pods whose gang has changed ----------------------------------------------

    def replace(self, groups: Iterable[PodGroup]) -> list[Pod]:
        """Takes these groups as the only ones. The kind is installed."""
        self._groups = {group.key: group for group in groups}
        return self._all()

    def see(self, group: PodGroup) -> list[Pod]:
        groups = self._groups = self._groups or {}
        known = groups.get(group.key)
        groups[group.key] = group
        return [] if known == group else self._of(group.key)

    def lose(self, group: PodGroup) -> list[Pod]:
        known = (self._groups or {}).pop(group.key, None)
        return [] if known is None else self._of(group.key)

    def uninstalled(self) -> list[Pod]:
        """The kind is no longer installed: the label has no meaning."""
        self._groups = None
        return self._all()

    def _all(self) -> list[Pod]:
        return [pod for name in self._members for pod in self._of(name)]

    def _of(self, name: GroupName) -> list[Pod]:
        # Living pods first: a finished pod counts only while other pods of its gang live.
        return sorted(self._members.get(name, {}).values(), key=lambda pod: pod.finished)

    @property
    def installed(self) -> bool:
        """Whether the kind is known to be installed."""
        return self._groups is not None

    def known(self) -> list[PodGroup]:
        return list((self._groups or {}).values())

    # -- pods ----------------------------------------------------------------------------------------------------

    def remember(self, pod: Pod) -> None:
        """Stores the pod by the group that it names."""
        name = (pod.gang.namespace, pod.gang.name) if isinstance(pod.gang, GroupAsk) else None
        if self._group_of.get(pod.uid, name) != name:
            self.forget(pod.uid)
        # Finished pods as well: their group may be seen later, and they count for its quorum.
        if name is not None:
            self._group_of[pod.uid] = name
            self._members.setdefault(name, {})[pod.uid] = pod

    def forget(self, uid: PodUid) -> None:
        self._unschedulable.discard(uid)
        name = self._group_of.pop(uid, None)
        if name is not None:
            members = self._members[name]
            del members[uid]
            if not members:
                del self._members[name]

    def turned_away(self, pod: Pod) -> None:
        """Notes that the resolved pod was rejected because of its group."""
        if isinstance(pod.gang, MalformedAsk) and pod.gang.field == POD_GROUP_LABEL:
            self._unschedulable.add(pod.uid)

    def to_wake(self, pod: Pod) -> bool:
        """Whether the pod was rejected because of its group; true once for each rejection."""
        if pod.uid not in self._unschedulable:
            return False
        self._unschedulable.discard(pod.uid)
        return pod.node is None

    def resolved(self, pod: Pod) -> Pod:
        """The pod, with the ask for a gang in place of the group's name."""
        of_group = isinstance(pod.gang, GroupAsk)
        ask = self._ask(pod.gang, pod.at_our_gate) if isinstance(pod.gang, GroupAsk) else pod.gang
        most = self._most_together
        # A bound pod waits for no other pod, and stays in a gang that was placed under a higher limit.
        if most is not None and isinstance(ask, GangAsk) and ask.quorum > most and pod.node is None:
            ask = too_large(ask, most, POD_GROUP_LABEL if of_group else MIN_MEMBER)
        return pod if ask is pod.gang else replace(pod, gang=ask)

    def _ask(self, ask: GroupAsk, at_our_gate: bool) -> GangAsk | MalformedAsk | None:
        if self._groups is None:
            return GATE_WITHOUT_GANG if at_our_gate else None
        group = self._groups.get((ask.namespace, ask.name))
        if group is None:
            return MalformedAsk(
                POD_GROUP_LABEL,
                ask.name,
                f"label {POD_GROUP_LABEL} names a PodGroup that does not exist",
                f"create the PodGroup {ask.name[:63]} in namespace {ask.namespace}; the pod is tried again then",
            )
        if not 1 <= group.min_member <= LARGEST_GANG:
            return MalformedAsk(
                POD_GROUP_LABEL,
                ask.name,
                f"spec.minMember of the pod's PodGroup is not from 1 to {LARGEST_GANG}",
                f"set spec.minMember of PodGroup {group} to a number from 1 to {LARGEST_GANG}",
            )
        # A '.' cannot occur in a label that names a gang of Escher.
        key = GangKey(ask.namespace, f"podgroup.{ask.name}")
        return GangAsk(key, group.min_member, min(group.timeout or DEFAULT_TIMEOUT, ask.longest_wait * 0.9))
