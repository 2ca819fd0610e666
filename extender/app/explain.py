"""Explain: why a pod or a gang waits, with numbers, and what would help. Reads the tables, changes nothing.

The same rules that decide are asked again, node by node: what kube-scheduler knows of nodes (`node_match`), our
filters, and room in the ledger. Nodes that fail by the same rule and resource are one group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from extender.app.claims import is_claim
from extender.app.explanation import Explanation, NodeGroup
from extender.app.inquiries import gang_of
from extender.app.management import NotFound
from extender.app.tables import Tables
from extender.app.wording import amount, left_in_part, number, what_runs, why_gang_waits, why_nobody_leaves
from extender.core.brake import Act
from extender.core.cluster import Node, Pod
from extender.core.gang_ask import MalformedAsk
from extender.core.gangs.gang import GIVES_WAY, HOPELESS, NOT_BROUGHT, OVER_QUOTA, QUARANTINE, REFUSED_ELSEWHERE, Gang
from extender.core.gangs.machine import Phase
from extender.core.isolation import Over
from extender.core.ledger import Holding
from extender.core.names import GangKey, in_domain
from extender.core.policy import Judge
from extender.core.units import Short
from extender.filters.ephemeral_fit import ABSENT
from extender.filters.governing import POLICIES
from extender.kube.names import NodeName, PodUid, ResourceKey
from extender.kube.node_match import accepts

_EXAMPLES = 5
_HOLDERS_SHOWN = 3

_CORDONED = "cordoned"
_TAINTED = "tainted"
_NOT_SELECTED = "not-selected"
_NO_ROOM = "no-room"
_ABSENT = "absent"


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

    def detail(self) -> str:
        short = self.best
        if short is None:
            return self.said
        if self.rule == _ABSENT:
            return f"{short.resource} does not exist on them"
        most = f"asked {amount(short.resource, short.asked)}, at most {number(short.resource, short.free)} free"
        return f"{self.said}: {most} (on {self.best_node})"

    def shown(self) -> NodeGroup:
        examples = sorted(self.nodes)[:_EXAMPLES]
        return NodeGroup(
            rule=self.rule, count=len(self.nodes), detail=self.detail(), examples=examples, short=self.best
        )


def _waits(subject: str, summary: str, *remedies: str, groups: Sequence[_Group] = ()) -> Explanation:
    shown = [group.shown() for group in groups]
    return Explanation(subject=subject, waits=True, summary=summary, groups=shown, remedies=list(remedies))


def _rests(subject: str, summary: str, node: NodeName | None = None) -> Explanation:
    return Explanation(subject=subject, waits=False, summary=summary, node=node)


def _adding(explanation: Explanation, said: str, remedy: str) -> Explanation:
    """With this besides; either may be empty."""
    summary = f"{explanation.summary}; {said}" if said else explanation.summary
    return replace(explanation, summary=summary, remedies=[*explanation.remedies, *([remedy] if remedy else [])])


class Explain:
    """`why_withheld`: why there is less of an ephemeral resource than is asked for; empty where there is not."""

    def __init__(self, tables: Tables, why_withheld: Callable[[ResourceKey], str] = lambda key: "") -> None:
        self._tables = tables
        self._why_withheld = why_withheld

    # -- pods ----------------------------------------------------------------------------------------------------

    def pod(self, namespace: str, name: str) -> Explanation:
        """Raises NotFound."""
        return self._aged(self._pod(namespace, name))

    def gang(self, key: GangKey) -> Explanation:
        """Raises NotFound."""
        return self._aged(self._gang(key))

    def _aged(self, explanation: Explanation) -> Explanation:
        """With how old what it rests on is, where that is of weight."""
        told = self._tables.knowledge.told() if explanation.waits else ""
        if not told:
            return explanation
        remedy = "see whether Escher can reach the API server: its log, and the ages in /readyz"
        summary = f"{explanation.summary}; {told}"
        return replace(explanation, summary=summary, remedies=[remedy, *explanation.remedies])

    def _pod(self, namespace: str, name: str) -> Explanation:
        pod = self._find(namespace, name)
        subject = f"pod {pod}"
        if pod.node is not None:
            return _rests(subject, f"is bound to {pod.node}", pod.node)
        if pod.deleting:
            return _rests(subject, "is being deleted")
        if not self._tables.ours(pod):
            summary = f"is the scheduler {pod.scheduler}'s, which does not ask Escher: why it waits is not known here"
            remedy = "name the scheduler in the setting scheduler_names, if it is a profile that calls Escher"
            return _waits(subject, summary, remedy)
        if self._tables.brake.observes(namespace):
            return self._observed(subject, pod)
        if isinstance(pod.gang, MalformedAsk):
            return _waits(subject, pod.gang.reason, pod.gang.remedy)
        gang = self._tables.gangs.of(pod.uid)
        if gang is not None:
            of_gang = self._gang(gang.key)
            return replace(of_gang, subject=subject, waits=True, summary=f"{of_gang.subject} {of_gang.summary}")
        if pod.gated or pod.at_our_gate:
            summary = "waits: it has scheduling gates, and no scheduler looks at it until they are removed"
            return _waits(subject, summary, "remove its scheduling gates")
        if (held := self._tables.ledger.holding(pod.uid)) is not None:
            return _waits(subject, f"its room is held on {held.node} until it is bound")
        groups, fitting = self._judge(pod)
        summary, remedies = self._summary(groups, fitting), self._remedies(groups, fitting)
        if not fitting and (never := self._tables.policies.judging.why_never(pod)) is not None:
            summary = f"{summary}; {never.explained or never.reason}"
            remedies.insert(0, "change one of these policies, or add or label nodes")
        return _waits(subject, summary, *remedies, groups=groups)

    def _observed(self, subject: str, pod: Pod) -> Explanation:
        """What would be answered, where nothing is refused."""
        now = self._tables.clock.steady()
        would = self._tables.observing.would_refuse(pod, list(self._tables.nodes), now)
        said = f"it would be turned away: {would}" if would else "it would pass"
        summary = f"is left to kube-scheduler, for Escher only observes here; {said}"
        return _waits(subject, summary, "`kubectl describe pod` tells why kube-scheduler has not placed it")

    def _held_back(self, gang: Gang) -> list[str]:
        """What would be done for the gang, and the brake holds."""
        brake, where = self._tables.brake, gang.key.namespace
        saves = brake.allows(Act.SAVE_ROOM, where)
        held = [] if saves else ["no room is saved for it"]
        if not (saves and brake.allows(Act.PREEMPT, where)):
            held.append("nobody is evicted for it")
        return held

    def _find(self, namespace: str, name: str) -> Pod:
        found = [pod for pod in self._tables.pods.values() if (pod.namespace, pod.name) == (namespace, name)]
        if not found:
            raise NotFound("pod", name, f"there is no unfinished pod {name} in namespace {namespace}")
        return max(found, key=lambda pod: (not pod.deleting, pod.created, pod.uid))

    # -- gangs ---------------------------------------------------------------------------------------------------

    def _gang(self, key: GangKey) -> Explanation:
        gang, subject = gang_of(self._tables, key), f"gang {key}"
        match gang.phase:
            case Phase.BOUND:
                return _rests(subject, f"is placed: {gang.roster.placed} members are bound")
            case Phase.BINDING:
                return _rests(subject, f"is being bound: {len(gang.barrier.writing)} Bindings are under way")
            case Phase.QUARANTINED:
                remedy = "report what Escher's log says of it; to start it anew, delete its pods and create them again"
                return _waits(subject, f"waits: {QUARANTINE}", remedy)
        if self._tables.brake.observes(key.namespace) and (member := next(gang.roster.unplaced(), None)) is not None:
            return self._observed(subject, member)
        explanation = self._waiting(gang, subject)
        if (unfinished := self._tables.gangs.waiting.preempting.victims.unfinished.get(key)) is not None:
            explanation = _adding(explanation, *left_in_part(unfinished))
        in_doubt = key in self._tables.gangs.quorums.in_doubt
        remedy = "to start it anew, delete its pods: Escher does not, for they may be what is left of one that ran"
        return _adding(explanation, what_runs(gang, in_doubt=in_doubt), remedy if in_doubt else "")

    def _waiting(self, gang: Gang, subject: str) -> Explanation:
        reason = why_gang_waits(gang, saved=gang is self._tables.gangs.waiting.queue.saved.gang)
        if gang.missing:
            absent, remedies = gang.absent, list[str]()
            if absent < gang.missing:
                remedies.append("remove the scheduling gates of its members; Escher takes off its own")
            if absent:
                remedies.append(f"create members ({absent} more), or lower the annotation escher.dev/gang-min-member")
            return _waits(subject, f"waits: {reason}", *remedies)
        if gang.phase is Phase.PLANNED:
            remedy = "wait: kube-scheduler is on its way with the others; if it is not, look at those that are pending"
            return _waits(subject, f"waits: {reason}", remedy)
        return self._without_room(gang, subject, reason)

    def _without_room(self, gang: Gang, subject: str, reason: str) -> Explanation:
        template = next(gang.roster.unplaced(), None)
        if template is None:
            return _waits(subject, f"waits: {reason}")
        groups, fitting = self._judge(template)
        remedies = self._remedies(groups, [])
        if template.governed:
            reason = f"{reason}; policies that govern it: {', '.join(each.name for each in template.governed)}"
        over = self._tables.gangs.waiting.quota.over(gang)
        if over is not None:
            return self._over_quota(subject, over)
        why_not = self._tables.gangs.planning.why_not(gang, self._tables.clock.steady())
        if why_not == HOPELESS:
            reason = f"{reason}; it would have no place if the nodes were empty either"
            remedies.insert(0, "loosen what its members require of each other, or add or label nodes")
        elif why_not == GIVES_WAY:
            reason = f"{reason}; {why_not}"
        elif why_not in (REFUSED_ELSEWHERE, NOT_BROUGHT):
            reason = f"{reason}; {why_not}, and it is planned again after a pause"
            remedies.insert(0, "look at `kubectl describe pod` of its members: there kube-scheduler tells its reason")
        if fitting:
            reason = f"{reason} ({len(fitting)} of {len(self._tables.nodes)} nodes have room for one member)"
            shortfall = gang.wait.shortfall
            if shortfall is not None and shortfall.cause is not None:
                each = amount(shortfall.cause.resource, shortfall.cause.asked)
                more = f"{gang.needed - shortfall.placed} more members"
                remedies.insert(0, f"free or add {each} for each of {more}, or lower the quorum")
        ahead = sum(
            other.turn < gang.turn and other.phase in (Phase.WAITING, Phase.GATHERING)
            for other in self._tables.gangs.by_key.values()
        )
        if self._tables.around.staying.anybody() and not self._tables.gangs.planning.could_ever_fit(gang):
            # Nothing is saved for it, and nobody evicted: that would lead to nothing.
            stays = "pods of DaemonSets, static pods, those of other schedulers and those that run for long stay"
            reason = f"{reason}; it would not fit if all that may leave had left: {stays}"
            remedies.append("add nodes that suit it, or ask for less in each member")
        elif ahead:
            reason = f"{reason}; gangs that wait before it: {ahead}"
        elif (why := self._tables.gangs.waiting.preempting.why_not(gang)) is not None:
            said, remedy = why_nobody_leaves(why, self._tables.clock.steady())
            reason = f"{reason}; {said}" if said else reason
            remedies += [remedy] if remedy else []
        if held := self._held_back(gang):
            reason = f"{reason}; {' and '.join(held)} (the brake: GET /v1/brake)"
        return _waits(subject, f"waits: {reason}", *remedies, groups=groups)

    def _over_quota(self, subject: str, over: Over) -> Explanation:
        remedy = (
            f"wait until others of namespace {over.namespace} are gone, or raise isolation's {over.of.value} for it"
        )
        if over.asked > over.limit:
            remedy = f"lower the quorum to {over.limit}, or raise isolation's {over.of.value} for {over.namespace}"
        return _waits(subject, f"waits: {OVER_QUOTA}; {over}", f"{remedy}; `escher quota` shows it")

    # -- nodes ---------------------------------------------------------------------------------------------------

    def _judge(self, pod: Pod) -> tuple[list[_Group], list[NodeName]]:
        """The nodes that may not have the pod, by rule, largest group first; and those that may."""
        judging = self._tables.policies.judging
        # A gang's plan names the node that the gang filter lets pass; without a plan it would only say that again.
        judges = judging.judges_of_nodes(pod)
        room = judging.room(pod)
        groups: dict[tuple[str, str], _Group] = {}
        fitting: list[NodeName] = []
        for node in self._tables.nodes.values():
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
                return _NOT_SELECTED, "the pod's node selector or required node affinity excludes them", None
            if node.unschedulable and accepts(replace(node, unschedulable=False), unselective):
                return _CORDONED, "they are cordoned", None
            return _TAINTED, "they have a taint that the pod does not tolerate", None
        for name, judge in judges:
            rejection = judge(node.name)
            if rejection is not None:
                return (_ABSENT if rejection.reason == ABSENT else name), rejection.reason, rejection.short
        short = room(node.name)
        return ("", "", None) if short is None else (_NO_ROOM, "they have too little room", short)

    def _summary(self, groups: Sequence[_Group], fitting: Sequence[NodeName]) -> str:
        total = len(self._tables.nodes)
        if not total:
            return "waits: the cluster has no nodes"
        if fitting:
            return f"waits for kube-scheduler: {len(fitting)} of {total} nodes have room, such as {fitting[0]}"
        return f"waits: none of {total} nodes can have it. " + "; ".join(
            f"{len(group.nodes)}: {group.detail()}" for group in groups
        )

    # -- what would help -----------------------------------------------------------------------------------------

    def _remedies(self, groups: Sequence[_Group], fitting: Sequence[NodeName]) -> list[str]:
        if fitting:
            return [
                "wait: kube-scheduler tries it again soon; `kubectl describe pod` tells of rules that only it knows"
            ]
        missing, others = list[str](), list[str]()
        for group in groups:
            withheld = "" if group.best is None else self._why_withheld(group.best.resource)
            if group.best is not None and withheld:
                missing.append(f"{group.best.resource} is not wholly in force: {withheld}; see `escher quota`")
            elif group.best is not None and group.rule == _ABSENT:
                missing.append(self._create(group.best))
            elif group.best is not None:
                others.append(self._make_room(group, group.best))
            elif group.rule.startswith(POLICIES):
                others.append("change that policy, or add nodes where it lets the pod be")
            elif group.rule == _CORDONED:
                others.append(f"uncordon a node, such as {min(group.nodes)}")
            elif group.rule == _TAINTED:
                others.append(f"tolerate the taints of a node, or remove them, such as those of {min(group.nodes)}")
            else:
                others.append("loosen the pod's node selector or affinity, or label a node to match it")
        return missing + others

    def _create(self, short: Short) -> str:
        key, asked = short.resource, short.asked
        part = key.partition("/")[2]
        namespace, dot, name = part.partition(".")
        where = f"--namespace {namespace} {name}" if dot else f"--shared {part}"
        somewhere = self._tables.ledger.totals.providers.get(key)
        told = f"create {key} where the pod may run: escher resource set {where} {asked} --node NODE"
        return f"{told} (it exists on {len(somewhere)} other nodes)" if somewhere else told

    def _make_room(self, group: _Group, short: Short) -> str:
        node = group.best_node or group.nodes[0]
        holders = self._holders(node, short.resource)
        lacking = amount(short.resource, short.asked - short.free)
        told = f"{lacking} more on {node}, where least is missing"
        if in_domain(short.resource, self._tables.ledger.capacity.domain):
            told = f"raise its capacity: {told}"
        elif group.rule == _NO_ROOM:
            told = f"a larger node, or room: {told}"
        return f"{told}; held there by {holders}" if holders else told

    def _holders(self, node: NodeName, resource: ResourceKey) -> str:
        row = self._tables.ledger.rows[node]
        held = [each for each in row.holdings.values() if each.units.get(resource)]
        held.sort(key=lambda each: (-each.units[resource], each.holder))
        said = [self._named(each) for each in held[:_HOLDERS_SHOWN]]
        more = len(held) - len(said)
        return ", ".join(dict.fromkeys(said)) + (f" and {more} more" if more > 0 else "")

    def _named(self, holding: Holding) -> str:
        pod = self._tables.pods.get(PodUid(holding.holder))
        if pod is not None:
            return f"pod {pod}"
        if is_claim(holding):
            return holding.holder.replace(":", " ", 1)
        return f"gang {holding.owner}" if holding.owner is not None else holding.holder
