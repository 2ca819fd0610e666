"""Explain: why a pod or a gang waits, with numbers, and what would help. Reads the keeper, changes nothing.

The same rules that decide are asked again, node by node: what kube-scheduler knows of nodes (`node_match`), our
filters, and room in the ledger. Nodes that fail by the same rule and resource are one group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from extender.app.claims import is_claim
from extender.app.keeper import Keeper
from extender.app.management import Explanation, NodeGroup, NotFound
from extender.app.wording import amount, left_in_part, number, what_runs, why_gang_waits, why_nobody_leaves
from extender.core.brake import Act
from extender.core.cluster import Node, Pod
from extender.core.gang import HOPELESS, NOT_BROUGHT, QUARANTINE, REFUSED_ELSEWHERE, Gang
from extender.core.gang_ask import MalformedAsk
from extender.core.gang_phases import Phase
from extender.core.ledger import Holding
from extender.core.names import GangKey, NodeName, PodUid, ResourceKey, in_domain
from extender.core.node_match import accepts
from extender.core.units import Short
from extender.filters.base import Judge
from extender.filters.ephemeral_fit import ABSENT

_EXAMPLES = 5
_HOLDERS_SHOWN = 3

CORDONED = "cordoned"
TAINTED = "tainted"
NOT_SELECTED = "not-selected"
NO_ROOM = "no-room"
ABSENT_RULE = "absent"


@dataclass(slots=True)
class _Group:
    rule: str
    said: str
    nodes: list[NodeName] = field(default_factory=list)
    best: Short | None = None
    best_node: NodeName | None = None

    def add(self, node: NodeName, short: Short | None) -> None:
        self.nodes.append(node)
        if short is not None and (self.best is None or short.free > self.best.free):
            self.best, self.best_node = short, node


class Explain:
    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    # -- pods ----------------------------------------------------------------------------------------------------

    def pod(self, namespace: str, name: str) -> Explanation:
        """Raises NotFound."""
        return self._aged(self._pod(namespace, name))

    def gang(self, key: GangKey) -> Explanation:
        """Raises NotFound."""
        return self._aged(self._gang(key))

    def _aged(self, explanation: Explanation) -> Explanation:
        """With how old what it rests on is, where that is of weight."""
        told = self._keeper.knowledge.told() if explanation.waits else ""
        if not told:
            return explanation
        remedy = "see whether Escher can reach the API server: its log, and the ages in /readyz"
        summary = f"{explanation.summary}; {told}"
        return replace(explanation, summary=summary, remedies=[remedy, *explanation.remedies])

    def _pod(self, namespace: str, name: str) -> Explanation:
        pod = self._find(namespace, name)
        subject = f"pod {pod}"
        if pod.node is not None:
            return Explanation(subject=subject, waits=False, summary=f"is bound to {pod.node}")
        if pod.deleting:
            return Explanation(subject=subject, waits=False, summary="is being deleted")
        if not self._keeper.ours(pod):
            summary = f"is the scheduler {pod.scheduler}'s, which does not ask Escher: why it waits is not known here"
            remedy = "name the scheduler in the setting scheduler_names, if it is a profile that calls Escher"
            return Explanation(subject=subject, waits=True, summary=summary, remedies=[remedy])
        if self._keeper.brake.observes(namespace):
            return self._observed(subject, pod)
        if isinstance(pod.gang, MalformedAsk):
            return Explanation(subject=subject, waits=True, summary=pod.gang.reason, remedies=[pod.gang.remedy])
        gang = self._keeper.gangs.of(pod.uid)
        if gang is not None:
            of_gang = self._gang(gang.key)
            return replace(of_gang, subject=subject, waits=True, summary=f"{of_gang.subject} {of_gang.summary}")
        if pod.gated or pod.at_our_gate:
            summary = "waits: it has scheduling gates, and no scheduler looks at it until they are removed"
            return Explanation(subject=subject, waits=True, summary=summary, remedies=["remove its scheduling gates"])
        held = self._keeper.ledger.holding(pod.uid)
        if held is not None:
            return Explanation(
                subject=subject, waits=True, summary=f"its room is held on {held.node} until it is bound"
            )
        groups, fitting = self._judge(pod)
        return Explanation(
            subject=subject,
            waits=True,
            summary=self._summary(groups, fitting),
            groups=[self._shown(group) for group in groups],
            remedies=self._remedies(groups, fitting),
        )

    def _observed(self, subject: str, pod: Pod) -> Explanation:
        """What would be answered, where nothing is refused."""
        now = self._keeper.clock.steady()
        would = self._keeper.observing.would_refuse(pod, list(self._keeper.nodes), now)
        said = f"it would be turned away: {would}" if would else "it would pass"
        return Explanation(
            subject=subject,
            waits=True,
            summary=f"is left to kube-scheduler, for Escher only observes here; {said}",
            remedies=["`kubectl describe pod` tells why kube-scheduler has not placed it"],
        )

    def _held_back(self, gang: Gang) -> list[str]:
        """What would be done for the gang, and the brake holds."""
        brake, where = self._keeper.brake, gang.key.namespace
        saves = brake.allows(Act.SAVE_ROOM, where)
        held = [] if saves else ["no room is saved for it"]
        if not (saves and brake.allows(Act.PREEMPT, where)):
            held.append("nobody is evicted for it")
        return held

    def _find(self, namespace: str, name: str) -> Pod:
        found = [pod for pod in self._keeper.pods.values() if (pod.namespace, pod.name) == (namespace, name)]
        if not found:
            raise NotFound("pod", name, f"there is no unfinished pod {name} in namespace {namespace}")
        return max(found, key=lambda pod: (not pod.deleting, pod.created, pod.uid))

    # -- gangs ---------------------------------------------------------------------------------------------------

    def _gang(self, key: GangKey) -> Explanation:
        gang = self._keeper.gangs.by_key.get(key)
        if gang is None:
            raise NotFound("name", key.name, f"there is no gang {key.name} in namespace {key.namespace}")
        subject = f"gang {key}"
        match gang.phase:
            case Phase.BOUND:
                return Explanation(subject=subject, waits=False, summary=f"is placed: {gang.placed} members are bound")
            case Phase.BINDING:
                return Explanation(
                    subject=subject, waits=False, summary=f"is being bound: {len(gang.writing)} Bindings are under way"
                )
            case Phase.QUARANTINED:
                remedy = "report what Escher's log says of it; to start it anew, delete its pods and create them again"
                return Explanation(subject=subject, waits=True, summary=f"waits: {QUARANTINE}", remedies=[remedy])
        if self._keeper.brake.observes(key.namespace) and (member := next(gang.unplaced(), None)) is not None:
            return self._observed(subject, member)
        explanation = self._waiting(gang, subject)
        if (unfinished := self._keeper.preempting.unfinished.get(key)) is not None:
            said, remedy = left_in_part(unfinished)
            summary, remedies = f"{explanation.summary}; {said}", [*explanation.remedies, remedy]
            explanation = replace(explanation, summary=summary, remedies=remedies)
        in_doubt = key in self._keeper.gangs.in_doubt
        if runs := what_runs(gang, in_doubt=in_doubt):
            explanation = replace(explanation, summary=f"{explanation.summary}; {runs}")
        if in_doubt:
            remedy = "to start it anew, delete its pods: Escher does not, for they may be what is left of one that ran"
            explanation = replace(explanation, remedies=[*explanation.remedies, remedy])
        return explanation

    def _waiting(self, gang: Gang, subject: str) -> Explanation:
        reason = why_gang_waits(gang, saved=gang is self._keeper.gangs.waiting.turns.saver)
        if gang.missing:
            absent, remedies = gang.absent, list[str]()
            if absent < gang.missing:
                remedies.append("remove the scheduling gates of its members; Escher takes off its own")
            if absent:
                remedies.append(f"create members ({absent} more), or lower the annotation escher.dev/gang-min-member")
            return Explanation(subject=subject, waits=True, summary=f"waits: {reason}", remedies=remedies)
        if gang.phase is Phase.PLANNED:
            remedy = "wait: kube-scheduler is on its way with the others; if it is not, look at those that are pending"
            return Explanation(subject=subject, waits=True, summary=f"waits: {reason}", remedies=[remedy])
        return self._without_room(gang, subject, reason)

    def _without_room(self, gang: Gang, subject: str, reason: str) -> Explanation:
        template = next(gang.unplaced(), None)
        if template is None:
            return Explanation(subject=subject, waits=True, summary=f"waits: {reason}")
        groups, fitting = self._judge(template)
        remedies = self._remedies(groups, [])
        why_not = self._keeper.gangs.why_not(gang, self._keeper.clock.steady())
        if why_not == HOPELESS:
            reason = f"{reason}; it would have no place if the nodes were empty either"
            remedies.insert(0, "loosen what its members require of each other, or add or label nodes")
        elif why_not in (REFUSED_ELSEWHERE, NOT_BROUGHT):
            reason = f"{reason}; {why_not}, and it is planned again after a pause"
            remedies.insert(0, "look at `kubectl describe pod` of its members: there kube-scheduler tells its reason")
        if fitting:
            cause = gang.shortfall.cause if gang.shortfall is not None else None
            where = f"{len(fitting)} of {len(self._keeper.nodes)} nodes have room for one member"
            reason = f"{reason} ({where})"
            if cause is not None:
                short = gang.needed - (gang.shortfall.placed if gang.shortfall else 0)
                each = amount(cause.resource, cause.asked)
                remedies.insert(0, f"free or add {each} for each of {short} more members, or lower the quorum")
        ahead = sum(
            other.turn < gang.turn and other.phase in (Phase.WAITING, Phase.GATHERING)
            for other in self._keeper.gangs.by_key.values()
        )
        if self._keeper.gangs.staying.anybody() and not self._keeper.gangs.could_ever_fit(gang):
            # Nothing is saved for it, and nobody evicted: that would lead to nothing.
            stays = "pods of DaemonSets, static pods, those of other schedulers and those that run for long stay"
            reason = f"{reason}; it would not fit if all that may leave had left: {stays}"
            remedies.append("add nodes that suit it, or ask for less in each member")
        elif ahead:
            reason = f"{reason}; gangs that wait before it: {ahead}"
        elif (why := self._keeper.preempting.why_not(gang)) is not None:
            said, remedy = why_nobody_leaves(why, self._keeper.clock.steady())
            reason = f"{reason}; {said}" if said else reason
            remedies += [remedy] if remedy else []
        if held := self._held_back(gang):
            reason = f"{reason}; {' and '.join(held)} (the brake: GET /v1/brake)"
        return Explanation(
            subject=subject,
            waits=True,
            summary=f"waits: {reason}",
            groups=[self._shown(group) for group in groups],
            remedies=remedies,
        )

    # -- nodes ---------------------------------------------------------------------------------------------------

    def _judge(self, pod: Pod) -> tuple[list[_Group], list[NodeName]]:
        """The nodes that may not have the pod, by rule, largest group first; and those that may."""
        judging = self._keeper.judging
        # A gang's plan names the node that the gang filter lets pass; without a plan it would only say that again.
        judges = [(policy.name, judge) for policy, judge in judging.judges_of_nodes(pod)]
        room = judging.room(pod)
        groups: dict[tuple[str, str], _Group] = {}
        fitting: list[NodeName] = []
        for node in self._keeper.nodes.values():
            rule, said, short = self._first_rule(node, pod, judges, room)
            if not rule:
                fitting.append(node.name)
                continue
            resource = "" if short is None else short.resource
            groups.setdefault((rule, resource), _Group(rule, said)).add(node.name, short)
        return sorted(groups.values(), key=lambda group: (-len(group.nodes), group.rule)), fitting

    def _first_rule(
        self,
        node: Node,
        pod: Pod,
        judges: Sequence[tuple[str, Judge]],
        room: Callable[[NodeName], Short | None],
    ) -> tuple[str, str, Short | None]:
        """Name of the rule that keeps the pod off the node, what it says, and the numbers; an empty name if none."""
        if not accepts(node, pod):
            unselective = replace(pod, node_selector={}, affinity=())
            if accepts(node, unselective):
                return NOT_SELECTED, "the pod's node selector or required node affinity excludes them", None
            if node.unschedulable and accepts(replace(node, unschedulable=False), unselective):
                return CORDONED, "they are cordoned", None
            return TAINTED, "they have a taint that the pod does not tolerate", None
        for name, judge in judges:
            rejection = judge(node.name)
            if rejection is not None:
                return (ABSENT_RULE if rejection.reason == ABSENT else name), rejection.reason, rejection.short
        short = room(node.name)
        return ("", "", None) if short is None else (NO_ROOM, "they have too little room", short)

    def _summary(self, groups: Sequence[_Group], fitting: Sequence[NodeName]) -> str:
        total = len(self._keeper.nodes)
        if not total:
            return "waits: the cluster has no nodes"
        if fitting:
            return f"waits for kube-scheduler: {len(fitting)} of {total} nodes have room, such as {fitting[0]}"
        return f"waits: none of {total} nodes can have it. " + "; ".join(
            f"{len(group.nodes)}: {self._detail(group)}" for group in groups
        )

    def _shown(self, group: _Group) -> NodeGroup:
        return NodeGroup(
            rule=group.rule,
            count=len(group.nodes),
            detail=self._detail(group),
            examples=sorted(group.nodes)[:_EXAMPLES],
            short=group.best,
        )

    def _detail(self, group: _Group) -> str:
        short = group.best
        if short is None:
            return group.said
        if group.rule == ABSENT_RULE:
            return f"{short.resource} does not exist on them"
        most = f"asked {amount(short.resource, short.asked)}, at most {number(short.resource, short.free)} free"
        return f"{group.said}: {most} (on {group.best_node})"

    # -- what would help -----------------------------------------------------------------------------------------

    def _remedies(self, groups: Sequence[_Group], fitting: Sequence[NodeName]) -> list[str]:
        if fitting:
            return [
                "wait: kube-scheduler tries it again soon; `kubectl describe pod` tells of rules that only it knows"
            ]
        found: list[str] = []
        missing = [group for group in groups if group.rule == ABSENT_RULE and group.best is not None]
        for group in missing:
            found.append(self._create(group))
        for group in groups:
            if group in missing:
                continue
            if group.best is not None:
                found.append(self._make_room(group, group.best))
            elif group.rule == CORDONED:
                found.append(f"uncordon a node, such as {min(group.nodes)}")
            elif group.rule == TAINTED:
                found.append(f"tolerate the taints of a node, or remove them, such as those of {min(group.nodes)}")
            else:
                found.append("loosen the pod's node selector or affinity, or label a node to match it")
        return found

    def _create(self, group: _Group) -> str:
        assert group.best is not None
        key, asked = group.best.resource, group.best.asked
        part = key.partition("/")[2]
        namespace, dot, name = part.partition(".")
        where = f"--namespace {namespace} {name}" if dot else f"--shared {part}"
        somewhere = self._keeper.ledger.providers.get(key)
        told = f"create {key} where the pod may run: escher resource set {where} {asked} --node NODE"
        return f"{told} (it exists on {len(somewhere)} other nodes)" if somewhere else told

    def _make_room(self, group: _Group, short: Short) -> str:
        node = group.best_node or group.nodes[0]
        holders = self._holders(node, short.resource)
        lacking = amount(short.resource, short.asked - short.free)
        told = f"{lacking} more on {node}, where least is missing"
        if in_domain(short.resource, self._keeper.ledger.domain):
            told = f"raise its capacity: {told}"
        elif group.rule == NO_ROOM:
            told = f"a larger node, or room: {told}"
        return f"{told}; held there by {holders}" if holders else told

    def _holders(self, node: NodeName, resource: ResourceKey) -> str:
        row = self._keeper.ledger.rows[node]
        held = [each for each in row.holdings.values() if each.units.get(resource)]
        held.sort(key=lambda each: (-each.units[resource], each.holder))
        said = [self._named(each) for each in held[:_HOLDERS_SHOWN]]
        more = len(held) - len(said)
        return ", ".join(dict.fromkeys(said)) + (f" and {more} more" if more > 0 else "")

    def _named(self, holding: Holding) -> str:
        pod = self._keeper.pods.get(PodUid(holding.holder))
        if pod is not None:
            return f"pod {pod}"
        if is_claim(holding):
            return holding.holder.replace(":", " ", 1)
        return f"gang {holding.owner}" if holding.owner is not None else holding.holder
