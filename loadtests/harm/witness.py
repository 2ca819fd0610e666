"""Witness: takes all events of the API server, in order, and finds what harm the service did.

    witness.watched({"type": "MODIFIED", "object": {...}}, at)      # pods, nodes, PodGroups, budgets, DaemonSets
    witness.audited({"verb": "create", "user": ..., "objectRef": ...})    # audit.k8s.io/v1, with the objects sent
    witness.finish(at); witness.violations(); witness.warnings()

It judges every eviction and deletion that the service asked for and that was done (`parts`, `preemptions`, `breakups`).
It judges every victim of kube-scheduler's that is a member of the service's gangs. It judges every pod that was Running
and Ready when it began to go. Its end must have a permitted cause: an owner, a user or kube-scheduler asked; or
kubelets and controllers, after others or after the loss of its node; or the service, with a stated reason.

Not judged: kube-scheduler's victims outside the service's gangs (it preempts them without the service too), or for a
pod whose profile does not call the service; and kube-scheduler's own choice by priority.

Watches and audit are two sources, and the effect of a request may come before the request. So the cause of a pod's end
is looked up a little later, and an eviction waits for its Event. Time is what the events say.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Collection, Sequence

from loadtests.harm import harms, parts
from loadtests.harm.breakups import KUBE_SCHEDULER, Breakups
from loadtests.harm.facts import Facts
from loadtests.harm.harms import Harm
from loadtests.harm.history import History, Seen
from loadtests.harm.preemptions import USUAL, Bounds, Preemptions
from loadtests.harm.statements import (
    IN_PART_REASONS,
    PART_REASON,
    SHORTLY,
    VICTIM_REASON,
    Eviction,
    PartsTold,
    Statement,
    Statements,
)
from loadtests.shared.reading import Json, seconds

SERVICE, SCHEDULER = "escher", "system:kube-scheduler"
KUBELETS = ("system:nodes", "kwok")
OURS = ("escher", "escher-ledger")

_ATTRIBUTED_WITHIN = 10.0
"""The most seconds between the watch's and the audit log's event about one change."""
_REMEMBERED = 600.0
_MASS_END = ("deletecollection", "pods", "")
_ENDS = (("delete", "pods", ""), ("create", "pods", "eviction"))
_REFUSED_FOR_GOOD = (404, 409, 422)
_MOST = 100_000
"""The most pods that are remembered beyond their end."""
_BUDGETS_COUNT_WITHIN = 10.0
"""Seconds within which a budget's status counts an evicted pod."""
_SAME = 0.001
"""Seconds: times that are closer are the same time."""


class HarmWitness:
    """`schedulers`: the service's profiles. `services`: its users. `part_seconds`: see `PartsTold`.

    `kubelets`: users that may finish what others began, but begin nothing. `audited`: False if there is no audit log;
    then pods that vanish are not judged."""

    def __init__(
        self,
        *,
        schedulers: Collection[str] = OURS,
        services: Collection[str] = (SERVICE,),
        scheduler_users: Collection[str] = (SCHEDULER,),
        kubelets: Collection[str] = KUBELETS,
        bounds: Bounds = USUAL,
        audited: bool = True,
        part_seconds: float = 120.0,
    ) -> None:
        self.history = History(frozenset(schedulers), _REMEMBERED)
        self.evictions = 0
        """How many pods the service had evicted."""
        self.events = 0
        self._services, self._schedulers = frozenset(services), frozenset(scheduler_users)
        self._kubelets = frozenset(kubelets)
        self._is_audited = audited
        self._bounds = bounds
        self._ended_lately: list[tuple[float, Facts]] = []
        """When the service asked for a pod's end, and the pod: budgets count it only later."""
        self._found: list[Harm] = []
        self._breakups = Breakups(self.history, bounds.whole_within, self._found.append, self._call_at, self._hindered)
        self._preemptions = Preemptions(self.history, bounds, self._found.append, self._call_at, self._breakups)
        self._refused: dict[str, None] = {}
        self._not_let_go: dict[str, float] = {}
        """By UID: when the service's eviction of a pod was last refused."""
        self._bound_by_others: dict[str, None] = {}
        self._leaving: dict[str, Seen] = {}
        """By UID: pods that began to go, with the cause still unknown."""
        self._unanswered: dict[str, tuple[Seen, str, bool]] = {}
        """By audit ID: unanswered requests for a pod's end: pod, user, and whether by eviction."""
        self._finished_by: dict[str, str] = {}
        """By UID: which kubelet deleted a pod that was leaving."""
        self._early: dict[str, tuple[float, str, bool]] = {}
        """By namespace and name: ends of pods unknown to the watch: time, user, if by eviction."""
        self._open_masses: dict[str, tuple[str, str]] = {}
        """By audit ID: collections of pods that are being deleted: namespace and user."""
        self._mass: list[tuple[float, str, str]] = []
        """Collections of pods that were deleted: time, namespace, user."""
        self._ended_namespaces: set[str] = set()
        self._interruptions: list[float] = []
        self._statements = Statements(
            self.history, bounds, self._preemptions, self._interruptions, self._found.append, self._call_at
        )
        self._parts_told = PartsTold(self.history, part_seconds, self._found.append, self._call_at)
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._now = 0.0

    # -- what is found -------------------------------------------------------------------------------------------

    def violations(self) -> list[Harm]:
        return [each for each in self._found if each.rule in harms.RULES]

    def warnings(self) -> list[Harm]:
        return [each for each in self._found if each.rule in harms.WARNINGS]

    def finish(self, at: float) -> None:
        """Ends the input: judges what still waits for another event, unless it is too recent."""
        self._advance(at)
        self._statements.finish(at)

    # -- what happens --------------------------------------------------------------------------------------------

    def follow(self, earlier: HarmWitness) -> None:
        """Takes over refused Bindings from the witness before a restore: they stay refused."""
        self._refused |= earlier._refused

    def interrupted(self, at: float) -> None:
        """The service was killed: it may not have written the Events on its last acts."""
        self._interruptions.append(at)

    def watched(self, event: Json, at: float) -> None:
        """Takes an event of a watch, at `at` seconds since the epoch."""
        kind, obj = event["type"], event["object"]
        if kind not in ("ADDED", "MODIFIED", "DELETED"):
            return
        self._advance(at)
        self.events += 1
        gone = kind == "DELETED"
        match obj.get("kind"):
            case "Pod":
                self._see_pod(obj, at, gone=gone)
            case "Node":
                if self.history.see_node(obj, at, gone=gone):
                    self._preemptions.node_changed()
            case "PodDisruptionBudget":
                self._breakups.budgets.see(obj, at, gone=gone)
            case "DaemonSet":
                self._breakups.daemon_sets.see(obj, gone=gone)
            case "PodGroup":
                self.history.see_group(obj, at, gone=gone)
            case "Namespace" if gone or obj["metadata"].get("deletionTimestamp"):
                self._ended_namespaces.add(obj["metadata"]["name"])
            case "Namespace":
                self._ended_namespaces.discard(obj["metadata"]["name"])

    def audited(self, event: Json) -> None:
        """Takes an audit event. A request without outcome (API server killed) may have one."""
        at = seconds(event.get("stageTimestamp") or event.get("requestReceivedTimestamp"))
        self._advance(at)
        self.events += 1
        about, code = event.get("objectRef") or {}, (event.get("responseStatus") or {}).get("code", 0)
        done = 200 <= code < 300
        what = (event.get("verb"), about.get("resource"), about.get("subresource") or "")
        user = (event.get("user") or {}).get("username") or ""
        if event.get("stage") == "RequestReceived":
            if what in _ENDS:
                self._asked(event, about, user)
            elif what == _MASS_END:
                self._open_masses[event.get("auditID") or ""] = (about.get("namespace") or "", user)
            return
        self._open_masses.pop(event.get("auditID") or "", None)
        self._unanswered.pop(event.get("auditID") or "", None)
        match what:
            case ("create", "pods", "binding"):
                self._bound(event, user, code)
            case ("create", "pods", "eviction") if not done and user in self._services:
                self._not_evicted(event, about, at)
            case ("create", "pods", "eviction") if done and not _is_dry(event):
                self._ended(event, about, user, at, evicted=True)
            case ("delete", "pods", "") if done and not _is_dry(event):
                self._ended(event, about, user, at, evicted=False)
            case ("deletecollection", "pods", "") if done and not _is_dry(event):
                self._mass.append((at, about.get("namespace") or "", user))
                self._attribute_masses(at)
            case ("create", "events", "") if user in self._services:
                self._stated(event.get("requestObject") or {}, at)

    # -- pods ----------------------------------------------------------------------------------------------------

    def _see_pod(self, obj: Json, at: float, *, gone: bool) -> None:
        known = self.history.pods.get(obj["metadata"]["uid"])
        was_leaving = known is not None and known.leaving_at is not None
        pod, before = self.history.lose_pod(obj, at) if gone else self.history.see_pod(obj, at)
        if pod.leaving_at is not None and not was_leaving:
            self._begins_to_go(pod, at)
        self._preemptions.pod_changed(pod, before)
        self._breakups.pod_changed(pod)
        self._parts_told.on_event(pod, at)

    def _begins_to_go(self, pod: Seen, at: float) -> None:
        if not self._is_audited or pod.left_by:
            return
        uid = pod.facts.uid
        self._leaving[uid] = pod
        early = self._early.pop(pod.facts.key, None)
        if early is not None and at - early[0] < _ATTRIBUTED_WITHIN:
            self._attribute(pod, early[1], at, evicted=early[2])
        self._attribute_masses(at)
        if uid in self._leaving:
            self._call_at(at + _ATTRIBUTED_WITHIN, lambda: self._has_vanished(pod, at))

    def _has_vanished(self, pod: Seen, at: float) -> None:
        """Judges a pod that began to go some time ago, without an answered request for it."""
        facts = pod.facts
        if self._leaving.pop(facts.uid, None) is None:
            return
        for asked, user, evicted in self._unanswered.values():
            if asked is pod:
                self._attribute(pod, user, at, evicted=evicted)
                return
        for namespace, user in self._open_masses.values():
            if namespace == facts.namespace:
                self._attribute(pod, user, at, evicted=False)
                return
        if not pod.healthy or facts.namespace in self._ended_namespaces:
            return
        if facts.node not in self.history.nodes and facts.node in self.history.lost_nodes:
            return
        by = self._finished_by.pop(facts.uid, "")
        why = f"it was Running and Ready on {facts.node}, and nobody is known to have asked for its end"
        if by:
            why = f"{why} but {by}"
        self._found.append(Harm(harms.VANISHED, facts.key, at, why))

    def _attribute_masses(self, at: float) -> None:
        self._mass = [each for each in self._mass if each[0] > at - _ATTRIBUTED_WITHIN]
        for _, namespace, user in self._mass:
            for pod in [pod for pod in self._leaving.values() if pod.facts.namespace == namespace]:
                self._attribute(pod, user, at, evicted=False)

    def _asked(self, event: Json, about: Json, user: str) -> None:
        """Notes a request; its outcome follows, unless the API server ends before."""
        pod = self._pod_of(event, about)
        if pod is not None:
            evicted = about.get("subresource") == "eviction"
            self._unanswered[event.get("auditID") or ""] = (pod, user, evicted)

    def _ended(self, event: Json, about: Json, user: str, at: float, *, evicted: bool) -> None:
        pod = self._pod_of(event, about)
        if pod is None:
            # The watch is behind: it will show the pod's whole life at once.
            self._early[f"{about.get('namespace') or ''}/{about.get('name') or ''}"] = (at, user, evicted)
            return
        # A request for a pod that was leaving already did not begin it. (A collection's request comes at its end.)
        late = pod.leaving_at is not None and _received(event) > pod.leaving_at + _SAME
        if pod.left_by or late:
            return
        if user in self._kubelets:
            # It finishes what others have begun, which may be seen later.
            self._finished_by[pod.facts.uid] = user
        else:
            self._attribute(pod, user, at, evicted=evicted)

    def _pod_of(self, event: Json, about: Json) -> Seen | None:
        """The pod of a request: by UID if one is given, else by its name."""
        sent, answered = event.get("requestObject") or {}, event.get("responseObject") or {}
        options = sent.get("deleteOptions") or sent
        uid = (options.get("preconditions") or {}).get("uid")
        if uid is None and answered.get("kind") == "Pod":
            uid = (answered.get("metadata") or {}).get("uid")
        if uid is not None:
            return self.history.pods.get(uid)
        return self.history.latest.get(f"{about.get('namespace') or ''}/{about.get('name') or ''}")

    def _attribute(self, pod: Seen, user: str, at: float, *, evicted: bool) -> None:
        """Notes that this user was the first to ask for the pod's end, and judges it."""
        facts = pod.facts
        pod.left_by = user
        self._leaving.pop(facts.uid, None)
        self._finished_by.pop(facts.uid, None)
        if pod.had_ended:
            return
        if user in self._services:
            self._service_ended(pod, at, evicted=evicted)
        elif user in self._schedulers and (facts.preempted_by or facts.scheduler) in self.history.schedulers:
            self._breakups.broken_up(pod, at, by=KUBE_SCHEDULER)

    # -- what the service did ------------------------------------------------------------------------------------

    def _service_ended(self, pod: Seen, at: float, *, evicted: bool) -> None:
        self.evictions += 1
        facts = pod.facts
        self._ended_lately = [each for each in self._ended_lately if each[0] > at - _BUDGETS_COUNT_WITHIN]
        # The preemptor of its gang's first victim may not be known yet.
        lately = {each.gang.id for _, each in self._ended_lately if each.gang is not None}
        followed = self._breakups.is_broken_up(pod) or (facts.gang is not None and facts.gang.id in lately)
        self._ended_lately.append((at, facts))
        why = "" if evicted else self._no_last_resort(at)
        if why:
            self._found.append(Harm(harms.DELETED, facts.key, at, why))
        not_a_part = parts.fault(pod, self.history, self._refused, self._bound_by_others)
        self._statements.evicted(Eviction(pod, at, not_a_part, followed, past_budgets=not evicted and not why))

    def _no_last_resort(self, at: float) -> str:
        """Why the service had to evict instead of delete; empty if a budget was in the way."""
        asked = "the service deleted it, and did not ask for its eviction"
        if not self._bounds.despite_budgets:
            return f"{asked}: no budget was heeded"
        together = [facts for _, facts in self._ended_lately]
        return "" if self._breakups.budgets.objection(together, at) else f"{asked}, which no budget would have refused"

    def _not_evicted(self, event: Json, about: Json, at: float) -> None:
        pod = self._pod_of(event, about)
        if pod is not None and not _is_dry(event):
            self._not_let_go[pod.facts.uid] = at

    def _hindered(self, since: float, rest: Sequence[Seen]) -> str:
        """What has kept the service from evicting the rest, since then; empty if nothing did."""
        if any(since - SHORTLY < each for each in self._interruptions):
            return "the service was killed meanwhile"
        if any(self._not_let_go.get(pod.facts.uid, 0.0) >= since for pod in rest):
            return "the API server refused the others, which it would have let go at the beginning"
        return ""

    def _stated(self, event: Json, at: float) -> None:
        regarding = event.get("regarding") or event.get("involvedObject") or {}
        uid, reason = regarding.get("uid") or "", event.get("reason") or ""
        if reason in IN_PART_REASONS:
            self._parts_told.said(uid, at)
        if reason == PART_REASON or VICTIM_REASON in reason:
            self._statements.said(uid, Statement(at, reason, event.get("note") or event.get("message") or ""))

    def _bound(self, event: Json, user: str, code: int) -> None:
        about = event.get("objectRef") or {}
        uid = ((event.get("requestObject") or {}).get("metadata") or {}).get("uid")
        if uid is None:
            seen = self.history.latest.get(f"{about.get('namespace') or ''}/{about.get('name') or ''}")
            if seen is None:
                return
            uid = seen.facts.uid
        if 200 <= code < 300:
            self._refused.pop(uid, None)
            if user not in self._services:
                _remember(self._bound_by_others, uid)
        elif code in _REFUSED_FOR_GOOD and user in self._services:
            seen = self.history.pods.get(uid)
            if seen is None or seen.bound_at is None:
                _remember(self._refused, uid)
                if seen is not None:
                    self._preemptions.binding_refused(seen)

    # -- time ----------------------------------------------------------------------------------------------------

    def _call_at(self, at: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._due, (at, next(self._order), what))

    def _advance(self, at: float) -> None:
        """Does all that was due before."""
        while self._due and self._due[0][0] <= at:
            heapq.heappop(self._due)[2]()
        self._now = max(self._now, at)


def _received(event: Json) -> float:
    return seconds(event.get("requestReceivedTimestamp") or event.get("stageTimestamp"))


def _is_dry(event: Json) -> bool:
    sent = event.get("requestObject") or {}
    options = sent.get("deleteOptions") or {}
    return bool(options.get("dryRun") or sent.get("dryRun")) or "dryRun=All" in (event.get("requestURI") or "")


def _remember(known: dict[str, None], uid: str) -> None:
    known[uid] = None
    if len(known) > _MOST:
        del known[next(iter(known))]
