"""Decision log: writes each decision as one debug line with a constant name and its subject.

A line has the words of `/v1/events` (`decision_events`). Lines of kube-scheduler's calls also have what was sent and
answered, and the seconds that the call took. If the log is to have these lines, the bootstrap puts `LoggedVerbs` and
`LoggedGoverning` around the deciding objects, and registers the functions below as callbacks. Else it costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import structlog

from extender.app.contracts.effects import Effect
from extender.app.contracts.extender_api import Verbs, Verdict, Victims
from extender.app.contracts.kind import Identity
from extender.app.contracts.policy_state import PolicyReceiver
from extender.app.contracts.ports import Clock, PodRef
from extender.app.observability.decision_events import OF_INTEREST, BindEnded, Filtered, Told, announced
from extender.core.cluster import Pod
from extender.core.gang_ask import GangAsk
from extender.core.gang_of_one import lone_pod
from extender.core.names import GangKey
from extender.core.policies.policy_types import PolicyInForce, type_of
from extender.kube.names import NodeName, ResourceKey

_log = structlog.get_logger(__name__)

NODES_SCORED = "NodesScored"
VICTIMS_ALLOWED = "VictimsAllowed"
PLAN_GIVEN_UP = "GangPlanGivenUp"
RESOURCE_SET = "ResourceSet"
POLICY_IN_FORCE = "PolicyInForce"
POLICY_WITHDRAWN = "PolicyWithdrawn"
ALONE_HERE = (NODES_SCORED, VICTIMS_ALLOWED, PLAN_GIVEN_UP, RESOURCE_SET, POLICY_IN_FORCE, POLICY_WITHDRAWN)
"""Lines of decisions that `/v1/events` does not have."""


def tell(told: Told, gang: str = "", **more: object) -> None:
    """Writes one line if the decision is of interest. `gang`: the gang of a pod."""
    if isinstance(told, OF_INTEREST):
        said = announced(0, 0.0, told)
        about = {"namespace": said.namespace, "gang": said.gang or gang, "pod": said.pod, "node": said.node}
        _write(said.what, **about, detail=said.detail, **more)


def also_told(others: Callable[[Effect], None]) -> Callable[[Effect], None]:
    """Returns a function that passes each effect to `others`, and to the log."""

    def both(effect: Effect) -> None:
        others(effect)
        tell(effect)

    return both


def plan_given_up(gang: GangKey, reason: str) -> None:
    """Logs that the gang's plan was given up: its reservations are free again."""
    _write(PLAN_GIVEN_UP, namespace=gang.namespace, gang=gang.name, detail=reason)


def resource_set(key: ResourceKey, units: Mapping[NodeName, int]) -> None:
    """Logs the units by node that are in force from now on; none: the resource is gone."""
    _write(RESOURCE_SET, resource=key, nodes=len(units), units=sum(units.values()))


def _write(what: str, **about: object) -> None:
    _log.debug(what, **{name: value for name, value in about.items() if value not in ("", None)})


class LoggedVerbs:
    """Implements `extender_api.Verbs`: passes each call to `verbs`, and logs its answer."""

    def __init__(self, verbs: Verbs, clock: Clock) -> None:
        self._verbs = verbs
        self._clock = clock

    def filter(self, pod: Pod, nodes: Sequence[NodeName], *, alone: bool = False) -> Verdict:
        began = self._clock.steady()
        verdict = self._verbs.filter(pod, nodes, alone=alone)
        counts = {"sent": len(nodes), "passed": len(verdict.passed)}
        tell(Filtered(pod, len(nodes), verdict), _gang_of(pod), **counts, seconds=self._since(began))
        return verdict

    def prioritize(self, pod: Pod, nodes: Sequence[NodeName]) -> Mapping[NodeName, int]:
        began = self._clock.steady()
        scores = self._verbs.prioritize(pod, nodes)
        best = max(scores, key=lambda name: (scores[name], name), default="")
        about = {"namespace": pod.namespace, "gang": _gang_of(pod), "pod": pod.name, "node": best}
        _write(NODES_SCORED, **about, sent=len(nodes), scored=len(scores), seconds=self._since(began))
        return scores

    async def bind(self, pod: PodRef, node: NodeName) -> str:
        began = self._clock.steady()
        refusal = await self._verbs.bind(pod, node)
        tell(BindEnded(pod, node, refusal), seconds=self._since(began))
        return refusal

    def preempt(self, pod: Pod, victims: Mapping[NodeName, Victims]) -> Mapping[NodeName, Victims]:
        began = self._clock.steady()
        allowed = self._verbs.preempt(pod, victims)
        about = {"namespace": pod.namespace, "gang": _gang_of(pod), "pod": pod.name}
        _write(VICTIMS_ALLOWED, **about, sent=len(victims), passed=len(allowed), seconds=self._since(began))
        return allowed

    def _since(self, began: float) -> float:
        return round(self._clock.steady() - began, 6)


def _gang_of(pod: Pod) -> str:
    return pod.gang.key.name if isinstance(pod.gang, GangAsk) and not lone_pod(pod.gang.key) else ""


class LoggedGoverning:
    """Implements `policy_state.PolicyReceiver`: passes each call on, and logs it."""

    def __init__(self, receiver: PolicyReceiver) -> None:
        self._receiver = receiver

    def put(self, name: Identity, policy: PolicyInForce) -> None:
        _write(POLICY_IN_FORCE, namespace=name.namespace, policy=name.name, type=type_of(policy.parameters))
        self._receiver.put(name, policy)

    def drop(self, name: Identity) -> None:
        _write(POLICY_WITHDRAWN, namespace=name.namespace, policy=name.name)
        self._receiver.drop(name)
