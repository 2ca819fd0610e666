"""Preemption notes, for people: what is done to free room for a gang or pod, or why nothing is.

They read the `Cache`, change nothing, and ask the same parts that decide.
"""

from __future__ import annotations

from collections.abc import Sequence

from extender.app.cache.cache import Cache
from extender.app.contracts.messages import why_nobody_leaves
from extender.app.explain.node_groups import Group
from extender.app.gangs_of_one import WhyNone
from extender.core.cluster import Pod
from extender.core.fit.equivalence import TOO_VARIED
from extender.core.gangs.preemption.preemption_limits import TooFewVictims, UnknownAsks
from extender.core.gangs.state.gang import NO_ROOM, QUARANTINE, Gang
from extender.core.gangs.state.state_machine import Phase
from extender.core.safety_switches import Act
from extender.filters.ephemeral_fit import EphemeralFit
from extender.filters.escher_policies.anti_affinity import PolicyAntiAffinity
from extender.filters.escher_policies.balance import PolicyBalance
from extender.filters.escher_policies.co_location import PolicyCoLocation
from extender.kube.names import NodeName, PodUid

_OURS = (EphemeralFit.name, PolicyAntiAffinity.name, PolicyBalance.name, PolicyCoLocation.name)
"""Escher's rules by which pods are in each other's way."""
_ON_THEIR_WAY = (
    "pods of lower priority hold what it lacks: kube-scheduler evicts them if its own fit check fails, else "
    "Escher does when kube-scheduler calls it for the pod again"
)
_REMEDIES = {
    WhyNone.NEVER: "give it a PriorityClass with preemptionPolicy PreemptLowerPriority",
    WhyNone.LOWEST: "give it a higher priority, or wait until other pods end",
    WhyNone.NO_LOWER_HOLDER: "give it a higher priority, or wait until other pods end",
    WhyNone.POLICIES: "set preempts_for_policies to true in Escher's settings",
}


def what_is_done(cache: Cache, gang: Gang) -> tuple[list[str], list[str]]:
    """What is done for the gang, which waits for room, or why nothing is; and what would help."""
    said, remedies = list[str](), list[str]()
    if gang.wait.shortfall is not None and gang.wait.shortfall.rule == TOO_VARIED:
        # The reason says what to change.
        return said, remedies
    gangs = cache.gangs
    ahead = sum(
        other.turn < gang.turn and other.phase in (Phase.WAITING, Phase.GATHERING) for other in gangs.by_key.values()
    )
    if cache.around.staying.anybody() and not gangs.planning.could_ever_fit(gang):
        # No room is reserved for it and no pod evicted: that would not help.
        stays = "pods of DaemonSets, static pods, pods of other schedulers and long-running pods stay"
        said.append(f"it would not fit even without all pods that can leave: {stays}")
        remedies.append("add suitable nodes, or request less for each member")
    elif ahead:
        said.append(f"gangs before it in the queue: {ahead}")
    elif (why := gangs.waiting.preempting.why_not(gang)) is not None:
        told, remedy = why_nobody_leaves(why, cache.clock.steady())
        said += [told] if told else []
        remedies += [remedy] if remedy else []
    if held := _held_back(cache, gang):
        said.append(f"{' and '.join(held)} (safety switches: GET /v1/safety-switches)")
    return said, remedies


def _held_back(cache: Cache, gang: Gang) -> list[str]:
    switches, where = cache.safety_switches, gang.key.namespace
    saves = switches.allows(Act.SAVE_ROOM, where)
    held = [] if saves else ["it gets no backfill reservation"]
    if not (saves and switches.allows(Act.PREEMPT, where)):
        held.append("no pod is evicted for it")
    return held


def who_leaves_for(cache: Cache, pod: Pod, groups: Sequence[Group]) -> tuple[str, str]:
    """What is done for a pod of no gang that fits nowhere, or why nothing is; and what would help.

    Both are empty if the pod waits for nothing that only Escher matches."""
    if not any(group.rule in _OURS for group in groups):
        return "", ""
    gangs = cache.gangs
    gang = gangs.of(pod.uid)
    if gang is None:
        why = cache.of_one.why_none(pod)
        if why is None:
            return _ON_THEIR_WAY, ""
        if why is WhyNone.TOO_FEW:
            # The reason why the pod fits nowhere says so already.
            return "", ""
        if why is WhyNone.UNKNOWN_ASKS:
            return why_nobody_leaves(UnknownAsks(pod.unknown_asks), 0.0)
        # While the setting is off, a higher priority evicts no pod for the sake of a policy.
        helps = why is not WhyNone.LOWEST or cache.asks_ephemeral(pod) or cache.rules.preemption.for_policies
        return f"Escher evicts no pod for it: {why.value}", _REMEDIES.get(why, "") if helps else ""
    if gang.phase is Phase.QUARANTINED:
        return QUARANTINE, ""
    if (node := gangs.waiting.preempting.nomination_of(pod)) is not None and _is_left(cache, pod, node):
        return f"pods of lower priority on {node} are terminating for it", ""
    said, remedies = what_is_done(cache, gang)
    if not said and isinstance(gangs.waiting.preempting.why_not(gang), TooFewVictims):
        said.append("it would not fit if Escher evicted all pods of lower priority that it may evict")
    waits = gangs.planning.why_not(gang, cache.clock.steady())
    said += [waits] if waits != NO_ROOM else []
    return "; ".join(said) or "it waits for its turn, when Escher may evict pods of lower priority for it", "; ".join(
        remedies
    )


def _is_left(cache: Cache, pod: Pod, node: NodeName) -> bool:
    """Whether a pod of lower priority is about to leave the node. O(holders on the node)."""
    row = cache.ledger.rows.get(node)
    there = (cache.pods.get(PodUid(holder)) for holder in (row.holdings if row is not None else ()))
    return any(each is not None and each.deleting and each.priority < pod.priority for each in there)
