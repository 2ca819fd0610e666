"""Explain: why a pod or a gang waits, with numbers, and what would help. It only reads the `Cache`.

It evaluates the rules that decide, node by node (`node_groups`), and adds the numbers of EscherPolicies
(`policy_details`). Remedies here come from the rules; `remedy_search` tries what would help.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import Self

from extender.app.cache.cache import Cache
from extender.app.cache.claims import is_claim, namespace_of
from extender.app.contracts.explanation import Explanation
from extender.app.contracts.messages import amount, left_in_part, what_runs, why_gang_waits
from extender.app.explain.node_groups import ABSENT, CORDONED, NO_ROOM, TAINTED, Group, Judged, NodeGroups
from extender.app.explain.policy_details import PolicyNumbers
from extender.app.explain.queries import gang_of, pod_of
from extender.app.preemption_notes import what_is_done, who_leaves_for
from extender.core.cluster import Pod
from extender.core.gang_ask import MalformedAsk
from extender.core.gang_of_one import lone_pod
from extender.core.gangs.state.gang import (
    GIVES_WAY,
    GOVERNED_ANEW,
    HOPELESS,
    NOT_BROUGHT,
    OVER_QUOTA,
    QUARANTINE,
    REFUSED_ELSEWHERE,
    UNPLANNED,
    Gang,
)
from extender.core.gangs.state.state_machine import Phase
from extender.core.ledger.ledger import Holding
from extender.core.ledger.units import Short
from extender.core.names import GangKey
from extender.core.tenancy.isolation import Over
from extender.filters.escher_policies import NAMED, POLICIES
from extender.filters.tenancy import TENANT_UNITS
from extender.kube.names import NodeName, PodUid, ResourceKey

_HOLDERS_SHOWN = 3


def _waits(subject: str, summary: str, *remedies: str) -> Explanation:
    return Explanation(subject=subject, waits=True, summary=summary, remedies=list(remedies))


def _rests(subject: str, summary: str, node: NodeName | None = None) -> Explanation:
    return Explanation(subject=subject, waits=False, summary=summary, node=node)


def _adding(explanation: Explanation, said: str, remedy: str) -> Explanation:
    """Returns the explanation with these added; either may be empty."""
    summary = f"{explanation.summary}; {said}" if said else explanation.summary
    return replace(explanation, summary=summary, remedies=[*explanation.remedies, *([remedy] if remedy else [])])


class Explain:
    """`why_withheld`: why an ephemeral resource has less than is asked for; empty if it has not."""

    def __init__(self, cache: Cache, why_withheld: Callable[[ResourceKey], str] = lambda key: "") -> None:
        self._cache = cache
        self._nodes = NodeGroups(cache)
        self._numbers = PolicyNumbers(cache)
        self.why_withheld = why_withheld
        self._within: str | None = None

    def within(self, namespace: str) -> Self:
        """Returns a copy that names no pods, gangs and claims of other namespaces."""
        found = copy(self)
        found._within = namespace
        return found

    # -- pods ----------------------------------------------------------------------------------------------------

    def pod(self, namespace: str, name: str) -> Explanation:
        """Raises NotFound."""
        pod = pod_of(self._cache, namespace, name)
        gang = self._cache.gangs.of(pod.uid)
        return self._aged(self._dated(self._pod(pod), [pod], pod.uid if gang is None else gang.key))

    def gang(self, key: GangKey) -> Explanation:
        """Raises NotFound, Invalid."""
        gang = gang_of(self._cache, key)
        return self._aged(self._dated(self._gang(gang), list(gang.roster.unplaced()), gang.key))

    def _dated(self, explanation: Explanation, pods: Sequence[Pod], subject: PodUid | GangKey) -> Explanation:
        """Adds since when these pods wait, and since when for this reason."""
        if not explanation.waits:
            return explanation
        cache, since = self._cache, self._cache.waits.since(subject)
        if since is None and isinstance(subject, GangKey):
            since = cache.gangs.by_key[subject].wait.since
        reason_since = None if since is None else cache.clock.now() - (cache.clock.steady() - since)
        created = [pod.created for pod in pods if pod.created]
        return replace(explanation, since=min(created, default=None), reason_since=reason_since)

    def _aged(self, explanation: Explanation) -> Explanation:
        """Adds the age of the data, if it matters."""
        told = self._cache.staleness.told() if explanation.waits else ""
        if not told:
            return explanation
        remedy = "check whether Escher can reach the API server: see its log, and the ages in /readyz"
        summary = f"{explanation.summary}; {told}"
        return replace(explanation, summary=summary, remedies=[remedy, *explanation.remedies])

    def _pod(self, pod: Pod) -> Explanation:
        subject = f"pod {pod}"
        if pod.node is not None:
            return _rests(subject, f"is bound to {pod.node}", pod.node)
        if pod.deleting:
            return _rests(subject, "is being deleted")
        if not self._cache.ours(pod):
            summary = f"has schedulerName {pod.scheduler}, which does not call Escher: why it waits is unknown here"
            remedy = "if that is a profile that calls Escher, add it to the setting scheduler_names"
            return _waits(subject, summary, remedy)
        if self._cache.safety_switches.observes(pod.namespace):
            return self._observed(subject, pod)
        if isinstance(pod.gang, MalformedAsk):
            return _waits(subject, pod.gang.reason, pod.gang.remedy)
        gang = self._cache.gangs.of(pod.uid)
        if gang is not None and not lone_pod(gang.key):
            of_gang = self._gang(gang)
            return replace(of_gang, subject=subject, waits=True, summary=f"{of_gang.subject} {of_gang.summary}")
        if pod.gated or pod.at_our_gate:
            summary = "waits: it has scheduling gates, and schedulers ignore it until these are removed"
            return _waits(subject, summary, "remove its scheduling gates")
        if (held := self._cache.ledger.holding(pod.uid)) is not None:
            return _waits(subject, f"waits: its capacity on {held.node} is reserved until it is bound")
        judged = self._nodes.judge(pod)
        summary, remedies = self._summary(judged.groups, judged.fitting), self._remedies(pod, judged)
        never = None if judged.fitting else self._cache.policies.filter_score.why_never(pod)
        if never is not None:
            # Whatever else lets this pod be placed keeps another pod of its policies waiting.
            summary = f"{summary}; {never.explained or never.reason}"
            remedies.insert(0, "change one of these policies, or add or label nodes")
        found, groups = _waits(subject, summary, *remedies), list(self._nodes.shown(pod, judged.groups))
        said, remedy = (
            ("", "") if judged.fitting or never is not None else who_leaves_for(self._cache, pod, judged.groups)
        )
        return replace(_adding(found, said, remedy), groups=groups, for_a_place=not judged.fitting and never is None)

    def _observed(self, subject: str, pod: Pod) -> Explanation:
        """Says what filter would answer if it refused pods."""
        now = self._cache.clock.steady()
        would = self._cache.observing.would_refuse(pod, list(self._cache.nodes), now)
        said = f"it would be refused: {would}" if would else "it would pass"
        summary = f"is left to kube-scheduler, because Escher only observes here; {said}"
        return _waits(subject, summary, "`kubectl describe pod` shows why kube-scheduler has not placed it")

    # -- gangs ---------------------------------------------------------------------------------------------------

    def _gang(self, gang: Gang) -> Explanation:
        key, subject = gang.key, f"gang {self._cache.gangs.naming.spoken(gang.key)}"
        match gang.phase:
            case Phase.BOUND:
                return _rests(subject, f"is placed: {gang.roster.placed} members are bound")
            case Phase.BINDING:
                return _rests(subject, f"is being bound: {len(gang.barrier.writing)} Bindings are under way")
            case Phase.QUARANTINED:
                remedy = "report Escher's log; to start the gang again, delete its pods and create them again"
                return _waits(subject, f"waits: {QUARANTINE}", remedy)
        if (
            self._cache.safety_switches.observes(key.namespace)
            and (member := next(gang.roster.unplaced(), None)) is not None
        ):
            return self._observed(subject, member)
        explanation = self._waiting(gang, subject)
        if (unfinished := self._cache.gangs.waiting.preempting.victims.unfinished.get(key)) is not None:
            by = unfinished.by
            if self._within is not None and not by.startswith(f"{self._within}/"):
                by = "a pod or gang of another namespace"
            explanation = _adding(explanation, *left_in_part(replace(unfinished, by=by)))
        in_doubt = key in self._cache.gangs.quorums.in_doubt
        remedy = "to start it again, delete its pods: Escher does not, because they may be the rest of a gang that ran"
        return _adding(explanation, what_runs(gang, in_doubt=in_doubt), remedy if in_doubt else "")

    def _waiting(self, gang: Gang, subject: str) -> Explanation:
        reason = why_gang_waits(gang, saved=gang is self._cache.gangs.waiting.queue.saved.gang)
        if gang.missing:
            absent, remedies = gang.absent, list[str]()
            if absent < gang.missing:
                remedies.append("remove the scheduling gates of its members; Escher removes its own")
            if absent:
                remedies.append(f"create members ({absent} more), or lower the annotation escher.dev/gang-min-member")
            return _waits(subject, f"waits: {reason}", *remedies)
        if gang.phase is Phase.PLANNED:
            remedy = "wait: kube-scheduler is scheduling the others; if it is not, look at the pending ones"
            return _waits(subject, f"waits: {reason}", remedy)
        return self._without_room(gang, subject, reason)

    def _without_room(self, gang: Gang, subject: str, reason: str) -> Explanation:
        template = next(gang.roster.unplaced(), None)
        if template is None:
            return _waits(subject, f"waits: {reason}")
        judged = self._nodes.judge(template)
        fitting, remedies = judged.fitting, self._remedies(template, Judged(judged.groups, []))
        if gang.wait.shortfall is None and judged.groups and not fitting:
            # No plan was looked for: no node can have a member.
            reason = f"none of {len(self._cache.nodes)} nodes can run one of its {gang.needed} members"
        if template.governed:
            reason = f"{reason}; policies that match it: {self._numbers.summed_up(template)}"
        over = self._cache.gangs.waiting.quota.over(gang)
        if over is not None:
            return self._over_quota(subject, over)
        why_not = self._cache.gangs.planning.why_not(gang, self._cache.clock.steady())
        if why_not == HOPELESS:
            reason = f"{reason}; it would not fit on empty nodes either"
            remedies.insert(0, "relax what its members require of each other, or add or label nodes")
        elif why_not == UNPLANNED:
            reason = f"{reason}; {why_not}"
            remedies.insert(0, "give its members fewer different specs and fewer different rules about other pods")
        elif why_not in (GIVES_WAY, GOVERNED_ANEW):
            reason = f"{reason}; {why_not}"
        elif why_not in (REFUSED_ELSEWHERE, NOT_BROUGHT):
            reason = f"{reason}; {why_not}, and it is planned again after a pause"
            remedies.insert(0, "look at `kubectl describe pod` of its members: it shows kube-scheduler's reason")
        if fitting:
            reason = f"{reason} (one member alone fits on {len(fitting)} of {len(self._cache.nodes)} nodes)"
            shortfall = gang.wait.shortfall
            if shortfall is not None and shortfall.cause is not None:
                each = amount(shortfall.cause.resource, shortfall.cause.asked)
                more = f"{gang.needed - shortfall.placed} more members"
                remedies.insert(0, f"free or add {each} for each of {more}, or lower gang-min-member")
        is_done, helps = what_is_done(self._cache, gang)
        reason, remedies = "; ".join([reason, *is_done]), [*remedies, *helps]
        found = _waits(subject, f"waits: {reason}", *remedies)
        return replace(found, groups=list(self._nodes.shown(template, judged.groups)), for_a_place=True)

    def _over_quota(self, subject: str, over: Over) -> Explanation:
        remedy = (
            f"wait until others of its namespace end, or raise isolation.namespaces.{over.namespace}.{over.of.value}"
        )
        if over.asked > over.limit:
            remedy = (
                f"set gang-min-member to {over.limit}, or raise isolation.namespaces.{over.namespace}.{over.of.value}"
            )
        return _waits(subject, f"waits: {OVER_QUOTA}; {over}", f"{remedy}; `escher quota` shows it")

    # -- nodes ---------------------------------------------------------------------------------------------------

    def _summary(self, groups: Sequence[Group], fitting: Sequence[NodeName]) -> str:
        total = len(self._cache.nodes)
        if not total:
            return "waits: the cluster has no nodes"
        if fitting:
            return f"waits for kube-scheduler: {len(fitting)} of {total} nodes fit it, such as {fitting[0]}"
        return f"waits: none of {total} nodes can run it. " + "; ".join(
            f"{len(group.nodes)}: {group.detail()}" for group in groups
        )

    # -- what would help -----------------------------------------------------------------------------------------

    def _remedies(self, pod: Pod, judged: Judged) -> list[str]:
        if judged.fitting:
            return ["wait: kube-scheduler tries it again soon; `kubectl describe pod` shows kube-scheduler's reasons"]
        missing, others = list[str](), list[str]()
        for group in judged.groups:
            withheld = "" if group.best is None else self.why_withheld(group.best.resource)
            if group.best is not None and withheld:
                missing.append(f"{group.best.resource} is not fully in force: {withheld}; see `escher quota`")
            elif group.best is not None and group.rule == ABSENT:
                missing.append(self._create(group.best))
            elif group.best is not None:
                others.append(self._make_room(group, group.best))
            elif group.rule == NAMED and not group.policy:
                others.append("let fewer policies match it: change escher.dev/policy, or the policies' selectors")
            elif group.rule == NAMED:
                there = group.policy in self._cache.policy_matching.in_force(pod.namespace)
                to_do = f"run escher policy ask {group.policy} --task NAME" if there else "create it"
                others.append(f"policy {group.policy}: {to_do}, or remove it from the pod")
            elif group.rule.startswith(POLICIES):
                others.append("change that policy, or add nodes that it allows")
            elif group.rule == TENANT_UNITS:
                key = self._cache.tenancy.foreign(pod.namespace, pod.requests)
                others.append(
                    f"let the owner of {key} export it to namespace {pod.namespace} (spec.exportTo), or request a"
                    " resource of your own namespace or a shared one"
                )
            elif group.rule == CORDONED:
                others.append(f"uncordon a node, such as {min(group.nodes)}")
            elif group.rule == TAINTED:
                others.append(f"tolerate or remove the taints of a node, such as {min(group.nodes)}")
            else:
                others.append("relax the pod's node selector or affinity, or label a node to match it")
        return missing + others

    def _create(self, short: Short) -> str:
        key, asked = short.resource, short.asked
        part = key.partition("/")[2]
        namespace, dot, name = part.partition(".")
        where = f"--namespace {namespace} {name}" if dot else f"--shared {part}"
        somewhere = self._cache.ledger.totals.providers.get(key)
        told = f"create {key} where the pod may run: escher resource set {where} {asked} --node NODE"
        return f"{told} (it exists on {len(somewhere)} other nodes)" if somewhere else told

    def _make_room(self, group: Group, short: Short) -> str:
        node = group.best_node or group.nodes[0]
        holders = self._holders(node, short.resource)
        lacking = amount(short.resource, short.asked - short.free)
        told = f"{lacking} more on {node}, where least is missing"
        if self._cache.ledger.capacity.is_ephemeral(short.resource):
            told = f"raise its capacity: {told}"
        elif group.rule == NO_ROOM:
            told = f"add a larger node, or free capacity: {told}"
        return f"{told}; used there by {holders}" if holders else told

    def _holders(self, node: NodeName, resource: ResourceKey) -> str:
        row = self._cache.ledger.rows[node]
        held = [each for each in row.holdings.values() if each.units.get(resource)]
        held.sort(key=lambda each: (-each.units[resource], each.holder))
        said = [self._named(each) for each in held[:_HOLDERS_SHOWN]]
        more = len(held) - len(said)
        return ", ".join(dict.fromkeys(said)) + (f" and {more} more" if more > 0 else "")

    def _named(self, holding: Holding) -> str:
        pod = self._cache.pods.get(PodUid(holding.holder))
        namespace = namespace_of(holding) if pod is None else pod.namespace
        if self._within not in (None, namespace):
            return "holders in another namespace"
        if pod is not None:
            return f"pod {pod}"
        if is_claim(holding):
            return holding.holder.replace(":", " ", 1)
        return f"gang {holding.owner}" if holding.owner is not None else holding.holder
