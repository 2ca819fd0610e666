"""The witness: is fed with all that the API server tells, in order, and says what harm was done.

    witness.watched({"type": "MODIFIED", "object": {...}}, at)      # pods, nodes, PodGroups, budgets, namespaces
    witness.audited({"verb": "create", "user": ..., "objectRef": ...})    # audit.k8s.io/v1, with the objects sent
    witness.finish(at); witness.violations(); witness.warnings()

Judged is every eviction and deletion that the service asked for and that was done (`parts`, `preemptions`,
`breakups`); every victim of kube-scheduler's, so far as it is a member of the service's gangs; and every pod that was
Running and Ready when it began to go: somebody must have asked for it, who may: an owner or a user, kubelets and
controllers after others or after the loss of its node, kube-scheduler, or the service with a reason that it stated in
an Event.

Not judged: whom kube-scheduler preempts among pods of no gang of the service's (it does so without the service too), or
for a pod of a profile that does not call the service; and kube-scheduler's own choice by priority.

Watches and audit come from two places, and a request's effect may be told before the request: so whoever left is
looked up a little later, and an eviction waits for its Event. Pure: time is what the events say.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from loadtests.harm import harms, parts
from loadtests.harm.breakups import KUBE_SCHEDULER, Breakups
from loadtests.harm.harms import Harm
from loadtests.harm.history import History, Seen
from loadtests.harm.preemptions import USUAL, Bounds, Preemptions
from loadtests.reading import Json, seconds

SERVICE, SCHEDULER = "escher", "system:kube-scheduler"
KUBELETS = ("system:nodes", "kwok")
OURS = ("escher", "escher-ledger")
PART_REASON, VICTIM_REASON, IN_PART_REASONS = "GangEvicted", "Preempted", ("GangInPart", "GangInDoubt")
"""Reasons of the service's Events: for a part that is evicted; in the reason for a victim; for a gang in part."""

_ATTRIBUTED_WITHIN = 10.0
"""Seconds by which what a watch tells and what the audit log tells may be apart."""
_STATED_WITHIN = 150.0
"""The service tries to write an Event for two minutes, for the API server may be away."""
_CLOSE = 5.0
_REMEMBERED = 600.0
_MASS_END = ("deletecollection", "pods", "")
_ENDS = (("delete", "pods", ""), ("create", "pods", "eviction"))
_REFUSED_FOR_GOOD = (404, 409, 422)
_MOST = 100_000
"""Pods of which something is remembered beyond their end."""
_SHORTLY = 3.0
_SAME = 0.001
"""Seconds: closer than that is at the same time."""


@dataclass(frozen=True)
class Statement:
    """What the service said about a pod in an Event."""

    at: float
    reason: str
    note: str


@dataclass
class _Eviction:
    pod: Seen
    at: float
    not_a_part: str
    """Why it may not have been evicted as a part; empty if it may."""
    followed: bool
    """Others of its gang had been taken."""
    judged: bool = False


class HarmWitness:
    """`schedulers`: the service's profiles. `services`: the user names that it has. `kubelets`: those that may finish
    what others began, and begin nothing. `audited`: False where nobody tells who asked for what; then only what was
    evicted with an Event is judged. `part_seconds`: how long a gang may be bound in part without a word."""

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
        self._bounds, self._is_audited, self._part_seconds = bounds, audited, part_seconds
        self._found: list[Harm] = []
        self._breakups = Breakups(self.history, bounds.whole_within, self._found.append, self._call_at, self._hindered)
        self._preemptions = Preemptions(self.history, bounds, self._found.append, self._call_at, self._breakups)
        self._statements: dict[str, list[Statement]] = {}
        self._waiting: dict[str, list[_Eviction]] = {}
        """By UID: evictions whose reason is not known yet."""
        self._refused: dict[str, None] = {}
        self._not_let_go: dict[str, float] = {}
        """By UID: when the eviction of a pod was last refused to the service."""
        self._bound_by_others: dict[str, None] = {}
        self._leaving: dict[str, Seen] = {}
        """By UID: pods that began to go, and nobody knows yet by whom."""
        self._unanswered: dict[str, tuple[Seen, str, bool]] = {}
        """By audit ID: requests for the end of a pod, by whom, and whether by eviction, whose outcome is not known."""
        self._finished_by: dict[str, str] = {}
        """By UID: which kubelet took away what is leaving."""
        self._early: dict[str, tuple[float, str, bool]] = {}
        """By namespace and name: ends of pods that no watch has told of yet: when, by whom, and whether by eviction."""
        self._open_masses: dict[str, tuple[str, str]] = {}
        """By audit ID: collections of pods that are being deleted: the namespace, and by whom."""
        self._mass: list[tuple[float, str, str]] = []
        """Collections of pods that were deleted: when, the namespace, by whom."""
        self._ended_namespaces: set[str] = set()
        self._interruptions: list[float] = []
        self._in_part: dict[str, float] = {}
        """By gang: since when it has been in part, where that is looked at later."""
        self._said_in_part: dict[str, float] = {}
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._now = 0.0

    # -- what is found -------------------------------------------------------------------------------------------

    def violations(self) -> list[Harm]:
        return [each for each in self._found if each.rule in harms.RULES]

    def warnings(self) -> list[Harm]:
        return [each for each in self._found if each.rule in harms.WARNINGS]

    def finish(self, at: float) -> None:
        """No more comes after this: what waits for another word is judged, unless there was no time for it."""
        self._advance(at)
        for held in list(self._waiting.values()):
            for eviction in held:
                if at - eviction.at > _CLOSE:
                    self._judge_unstated(eviction)
        self._waiting.clear()

    # -- what happens --------------------------------------------------------------------------------------------

    def interrupted(self, at: float) -> None:
        """The service was killed: what it had just done it may not have been able to say."""
        self._interruptions.append(at)

    def watched(self, event: Json, at: float) -> None:
        """An event of a watch, `at` seconds since the epoch."""
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
            case "PodGroup":
                self.history.see_group(obj, at, gone=gone)
            case "Namespace" if gone or obj["metadata"].get("deletionTimestamp"):
                self._ended_namespaces.add(obj["metadata"]["name"])
            case "Namespace":
                self._ended_namespaces.discard(obj["metadata"]["name"])

    def audited(self, event: Json) -> None:
        """An event of the audit log. Requests that have no outcome there (the API server was killed) may have one."""
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
        self._heed_part(pod, at)

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
        """It began to go some time ago, and no request that was answered explains it."""
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
        """Its outcome will be told, unless the API server ends before."""
        pod = self._pod_of(event, about)
        if pod is not None:
            evicted = about.get("subresource") == "eviction"
            self._unanswered[event.get("auditID") or ""] = (pod, user, evicted)

    def _ended(self, event: Json, about: Json, user: str, at: float, *, evicted: bool) -> None:
        pod = self._pod_of(event, about)
        if pod is None:
            # The watch is behind: it will tell of the pod's whole life at once.
            self._early[f"{about.get('namespace') or ''}/{about.get('name') or ''}"] = (at, user, evicted)
            return
        # What was asked for when it was on its way already has not begun it. (A collection is told of at its end.)
        late = pod.leaving_at is not None and _received(event) > pod.leaving_at + _SAME
        if pod.left_by or late:
            return
        if user in self._kubelets:
            # It finishes what others have begun, of which may be told later.
            self._finished_by[pod.facts.uid] = user
        else:
            self._attribute(pod, user, at, evicted=evicted)

    def _pod_of(self, event: Json, about: Json) -> Seen | None:
        """The pod that a request was about: by UID where one is told, else by its name."""
        sent, answered = event.get("requestObject") or {}, event.get("responseObject") or {}
        options = sent.get("deleteOptions") or sent
        uid = (options.get("preconditions") or {}).get("uid")
        if uid is None and answered.get("kind") == "Pod":
            uid = (answered.get("metadata") or {}).get("uid")
        if uid is not None:
            return self.history.pods.get(uid)
        return self.history.latest.get(f"{about.get('namespace') or ''}/{about.get('name') or ''}")

    def _attribute(self, pod: Seen, user: str, at: float, *, evicted: bool) -> None:
        """It was this user who first asked for the end of the pod."""
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
        if not evicted:
            why = "the service deleted it, and did not ask for its eviction: no budget was heeded"
            self._found.append(Harm(harms.DELETED, facts.key, at, why))
        not_a_part = parts.fault(pod, self.history, self._refused, self._bound_by_others)
        eviction = _Eviction(pod, at, not_a_part, self._breakups.is_broken_up(pod))
        said = self._statements.get(facts.uid, ())
        close = [each for each in said if abs(each.at - at) <= _CLOSE]
        if close:
            self._judge(eviction, close[-1])
            return
        self._waiting.setdefault(facts.uid, []).append(eviction)
        # An Event is not repeated: one that is older may have been the word for this as well.
        self._call_at(at + _CLOSE, lambda: self._judge_by_older(eviction))
        self._call_at(at + _STATED_WITHIN, lambda: self._judge_unstated(eviction))

    def _not_evicted(self, event: Json, about: Json, at: float) -> None:
        pod = self._pod_of(event, about)
        if pod is not None and not _is_dry(event):
            self._not_let_go[pod.facts.uid] = at

    def _hindered(self, since: float, rest: Sequence[Seen]) -> str:
        """What has kept the service from evicting the rest, from then on; empty if nothing did."""
        if any(since - _SHORTLY < each for each in self._interruptions):
            return "the service was killed meanwhile"
        if any(self._not_let_go.get(pod.facts.uid, 0.0) >= since for pod in rest):
            return "the API server refused the others, which it would have let go at the beginning"
        return ""

    def _stated(self, event: Json, at: float) -> None:
        regarding = event.get("regarding") or event.get("involvedObject") or {}
        uid, reason = regarding.get("uid") or "", event.get("reason") or ""
        statement = Statement(at, reason, event.get("note") or event.get("message") or "")
        if reason in IN_PART_REASONS:
            self._has_said_in_part(uid, at)
        if not _is_about_an_end(reason):
            return
        self._statements.setdefault(uid, []).append(statement)
        if len(self._statements) > _MOST:
            del self._statements[next(iter(self._statements))]
        for eviction in self._waiting.pop(uid, ()):
            self._judge(eviction, statement)

    def _judge_by_older(self, eviction: _Eviction) -> None:
        said = self._statements.get(eviction.pod.facts.uid)
        if said and not eviction.judged:
            self._judge(eviction, said[-1])

    def _judge(self, eviction: _Eviction, statement: Statement) -> None:
        if eviction.judged:
            return
        eviction.judged = True
        pod, at = eviction.pod, eviction.at
        as_part = statement.reason == PART_REASON
        if pod.facts.scheduler not in self.history.schedulers and (as_part or not self._bounds.foreign_victims):
            why = f"it is {pod.facts.scheduler}'s, and the service evicted it: {statement.note!r}"
            self._found.append(Harm(harms.FOREIGN, pod.facts.key, at, why))
        if as_part:
            if eviction.not_a_part and pod.facts.scheduler in self.history.schedulers:
                self._found.append(Harm(harms.PART, pod.facts.key, at, eviction.not_a_part))
        else:
            self._preemptions.evicted(pod, statement.note, at, followed=eviction.followed)

    def _judge_unstated(self, eviction: _Eviction) -> None:
        if eviction.judged:
            return
        eviction.judged = True
        pod, at = eviction.pod, eviction.at
        self._waiting.pop(pod.facts.uid, None)
        if not eviction.not_a_part:
            # It was allowed, whatever was said.
            return
        if eviction.followed:
            self._preemptions.evicted(pod, "", at, followed=True)
            return
        why = "the service evicted it and wrote no Event that says why"
        if any(-_SHORTLY < each - at < _STATED_WITHIN for each in self._interruptions):
            self._found.append(Harm(harms.INTERRUPTED, pod.facts.key, at, why))
            return
        why = f"{why}; as a part it was not to be evicted: {eviction.not_a_part}"
        self._found.append(Harm(harms.UNSTATED, pod.facts.key, at, why))

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

    # -- gangs in part -------------------------------------------------------------------------------------------

    def _heed_part(self, pod: Seen, at: float) -> None:
        gang = self.history.gang_of(pod)
        if gang is None or gang.partly_since != at or self._in_part.get(gang.key) == at:
            return
        key, since = gang.key, at
        self._in_part[key] = since

        def look() -> None:
            if self._in_part.get(key) == since:
                del self._in_part[key]
            now = self.history.gangs.get(key)
            if now is None or now.partly_since != since or self._said_in_part.get(key, 0.0) >= since:
                return
            why = (
                f"{len(now.bound)} of quorum {now.quorum} are bound since {self._part_seconds:g} s, "
                f"and no Event {IN_PART_REASONS[0]} says so"
            )
            self._found.append(Harm(harms.IN_PART, f"gang {key}", since, why))

        self._call_at(at + self._part_seconds, look)

    def _has_said_in_part(self, uid: str, at: float) -> None:
        seen = self.history.pods.get(uid)
        if seen is not None and seen.facts.gang is not None:
            self._said_in_part[seen.facts.gang.key] = at

    # -- time ----------------------------------------------------------------------------------------------------

    def _call_at(self, at: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._due, (at, next(self._order), what))

    def _advance(self, at: float) -> None:
        """All that was due before is done."""
        while self._due and self._due[0][0] <= at:
            heapq.heappop(self._due)[2]()
        self._now = max(self._now, at)


def _is_about_an_end(reason: str) -> bool:
    return reason == PART_REASON or VICTIM_REASON in reason


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
