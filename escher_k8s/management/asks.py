"""Asks: what a policy wants of a pod, and how several asks become one.

An ask has labels, annotations, resources, scheduler names and gates. A policy is a function that makes an `Ask`. Two
asks can be merged if they do not contradict each other. `pods` writes them into manifests.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from escher_k8s.answers import PolicyAnswer
from escher_k8s.errors import Contradiction
from escher_k8s.pods import Manifest, changed, spelt
from escher_k8s.workloads import Template, require_enough, templates, with_templates
from extender.core.gang_ask import GANG_LABEL, MIN_MEMBER, TIMEOUT
from extender.core.names import DOMAIN, ephemeral_name
from extender.esl.base import PodRequirement
from extender.esl.gangs.gang_spec import Approach
from extender.esl.gangs.gang_spec import gang as gang_spec
from extender.kube.names import require_label
from extender.kube.quantities import count

SchedulerName = Literal["escher", "escher-ledger"]
W = TypeVar("W")
_NOTHING: Mapping[str, Any] = MappingProxyType({})
POLICY = f"{DOMAIN}/policy"
_KUBERNETES_DEFAULT = "default-scheduler"


@dataclass(frozen=True, slots=True)
class Ask:
    """What a pod has to carry. `&` merges two asks into one; `attach` completes a pod."""

    subject: str
    """What is asked for, in words."""
    namespace: str
    resources: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    """Kubernetes' quantities by resource, for the pod's first container."""
    labels: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    annotations: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    """Includes the annotation that names the policies."""
    scheduler_name: str = ""
    """Empty: any scheduler."""
    scheduling_gates: tuple[str, ...] = ()
    policies: tuple[tuple[str, ...], ...] = ()
    """EscherPolicies to match: alternatives, best first, each of policies that all apply."""
    effects: tuple[str, ...] = ()
    """What this ask, and others at the same moment, have already caused, in words."""
    notices: tuple[str, ...] = ()
    """The current obstacles, in words: the pod waits meanwhile."""

    def __post_init__(self) -> None:
        if self.policies:
            said = {**self.annotations, POLICY: "|".join(",".join(names) for names in self.policies)}
            object.__setattr__(self, "annotations", said)

    def __and__(self, other: Ask) -> Ask:
        """Both asks at once. Raises Contradiction, which names the field and both values."""
        if not isinstance(other, Ask):
            return NotImplemented
        if self.namespace != other.namespace:
            raise Contradiction("namespace", f"{self._says(self.namespace)}, {other._says(other.namespace)}")
        if self.scheduler_name and other.scheduler_name and self.scheduler_name != other.scheduler_name:
            said = f"{self._says(self.scheduler_name)}, {other._says(other.scheduler_name)}"
            raise Contradiction("schedulerName", said)
        return Ask(
            f"{self.subject} and {other.subject}",
            self.namespace,
            self._both("resources", self.resources, other, other.resources),
            self._both("labels", self.labels, other, other.labels),
            self._both("annotations", self._beside_policies(), other, other._beside_policies()),
            self.scheduler_name or other.scheduler_name,
            tuple(dict.fromkeys([*self.scheduling_gates, *other.scheduling_gates])),
            _together(self.policies, other.policies),
            (*self.effects, *other.effects),
            (*self.notices, *other.notices),
        )

    def __or__(self, other: Ask) -> Ask:
        """The first of both that can be had. Raises Contradiction unless both ask only policies."""
        if not isinstance(other, Ask):
            return NotImplemented
        for each in (self, other):
            if not each.policies or each.resources or each.labels or each._beside_policies() or each.scheduling_gates:
                raise Contradiction("|", f"{each.subject} cannot be an alternative: it must ask for policies alone")
        both = self & other
        return replace(
            both,
            subject=f"{self.subject} or {other.subject}",
            policies=tuple(dict.fromkeys((*self.policies, *other.policies))),
        )

    def attach(self, workload: W, *, only: str | Collection[str] | None = None, others: int = 0) -> W:
        """A copy whose pods ask for this.

        `workload`: a pod, pod template, Job, CronJob, JobSet, StatefulSet, Deployment or ReplicaSet; as a dict, or as a
        model of the `kubernetes` package. `only`: of a JobSet, these replicatedJobs; None: all. `others`: members of
        the gang from elsewhere. Raises Contradiction if the pods already carry another value, or can never be as many
        as the gang has members; TypeError for objects without pods, or with bound ones (DaemonSet).
        """
        found = templates(workload, only)
        for template in found:
            self._require_agreement(template)
        self._require_namespace("metadata.namespace", spelt(workload))
        if GANG_LABEL in self.labels:
            require_enough(workload, self.labels[GANG_LABEL], int(self.annotations[MIN_MEMBER]), others)
        requirement = PodRequirement(
            self.resources, self.labels, self.annotations, self.scheduler_name, gates=self.scheduling_gates
        )
        return with_templates(
            workload,
            [(each, partial(changed, wanted=requirement.attach(each.manifest))) for each in found],
        )

    def _require_namespace(self, field: str, said: Manifest) -> None:
        namespace = (said.get("metadata") or {}).get("namespace")
        if namespace not in (None, "", self.namespace):
            self._contradicts(field, namespace, self.namespace)

    def _require_agreement(self, template: Template) -> None:
        pod, at = template.manifest, template.field
        metadata, spec = pod.get("metadata") or {}, pod["spec"]
        self._require_namespace(at("metadata.namespace"), pod)
        scheduler = spec.get("schedulerName")
        if self.scheduler_name and scheduler not in (None, "", _KUBERNETES_DEFAULT, self.scheduler_name):
            self._contradicts(at("spec.schedulerName"), scheduler, self.scheduler_name)
        for name, asked in (("labels", self.labels), ("annotations", self.annotations)):
            has = metadata.get(name) or {}
            for key, value in asked.items():
                if has.get(key, value) != value:
                    self._contradicts(at(f"metadata.{name}[{key!r}]"), has[key], value)
        resources = spec["containers"][0].get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for key, quantity in self.resources.items():
            where = at(f"spec.containers[0].resources.{{}}[{key!r}]")
            if key in requests and count(key, str(requests[key])) != count(key, quantity):
                self._contradicts(where.format("requests"), requests[key], quantity)
            if key in limits and count(key, str(limits[key])) < count(key, quantity):
                self._contradicts(where.format("limits"), limits[key], quantity)

    def _beside_policies(self) -> Mapping[str, str]:
        """The annotations except `POLICY`, if `policies` holds it."""
        return {key: value for key, value in self.annotations.items() if not self.policies or key != POLICY}

    def _contradicts(self, where: str, found: object, wanted: str) -> None:
        raise Contradiction(
            where, f"the pod already has {str(found)!r}, but {self._says(wanted)}; remove it from the pod, or ask alike"
        )

    def _both(self, where: str, mine: Mapping[str, str], other: Ask, others: Mapping[str, str]) -> Mapping[str, str]:
        for key in mine.keys() & others.keys():
            same = (
                count(key, mine[key]) == count(key, others[key]) if where == "resources" else mine[key] == others[key]
            )
            if not same:
                raise Contradiction(f"{where}[{key!r}]", f"{self._says(mine[key])}, {other._says(others[key])}")
        return {**mine, **{key: value for key, value in others.items() if key not in mine}}

    def _says(self, value: str) -> str:
        return f"{self.subject} asks for {value!r}"


def gang(
    namespace: str,
    name: str,
    size: int,
    each: Mapping[str, str] | None = None,
    *,
    scheduler_name: SchedulerName = "escher",
    timeout_seconds: int | None = None,
    gated: bool = False,
) -> Ask:
    """An ask for `size` or more pods, together or not at all. Raises ValueError (field, value)."""
    approach = _approach(scheduler_name)
    if timeout_seconds is not None and timeout_seconds < 1:
        raise ValueError(f"timeout_seconds is {timeout_seconds}; write a whole number of seconds, 1 or more")
    # If the pods themselves state what they need, the bundle is empty.
    bundle = {"cpu": "0"} if each is None else dict(each)
    spec = gang_spec(name, size, bundle, namespace=namespace, gated=gated)
    said = spec.requirement(0, approach)
    waits = {} if timeout_seconds is None else {TIMEOUT: str(timeout_seconds)}
    return Ask(
        f"gang {name!r} of {size}",
        namespace,
        resources=_NOTHING if each is None else said.resources,
        labels=said.labels,
        annotations={**said.annotations, **waits},
        scheduler_name=said.scheduler_name,
        scheduling_gates=said.gates,
    )


def resource_request(namespace: str, name: str, units: int = 1, *, shared: bool = False) -> Ask:
    """An ask for `units` of an ephemeral resource, by any scheduler. Raises ValueError."""
    if isinstance(units, bool) or not isinstance(units, int) or units < 1:
        raise ValueError(f"units is {units!r}; write a whole number, 1 or more")
    key = ephemeral_name(namespace, name, shared=shared).key()
    return Ask(f"resource {name!r}", namespace, resources={key: str(units)})


def policy(namespace: str, *names: str) -> Ask:
    """An ask for all these EscherPolicies. Raises ValueError."""
    if not names:
        raise ValueError("names is empty; write the name of an EscherPolicy, or several")
    for name in names:
        require_label("policy", name)
    subject = f"policy {names[0]!r}" if len(names) == 1 else f"policies {', '.join(map(repr, names))}"
    return Ask(subject, namespace, scheduler_name=Approach.EXTENDER.value, policies=(tuple(dict.fromkeys(names)),))


def of_answer(answer: PolicyAnswer) -> Ask:
    """What a policy has answered. An answer that names the policy can be an alternative, `|`."""
    named = answer.annotations.get(POLICY)
    return Ask(
        f"task {answer.task!r} of policy {answer.policy!r}",
        answer.namespace,
        resources=answer.requirement,
        labels=answer.labels,
        annotations=answer.annotations,
        scheduler_name=answer.scheduler_name,
        policies=() if named is None else ((named,),),
        effects=tuple(answer.effects),
        notices=tuple(answer.notices),
    )


def _together(mine: tuple[tuple[str, ...], ...], others: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
    """Every alternative of `mine` combined with every one of `others`."""
    if not (mine and others):
        return mine or others
    return tuple(dict.fromkeys(tuple(dict.fromkeys((*one, *other))) for one in mine for other in others))


def _approach(scheduler_name: str) -> Approach:
    if scheduler_name not in (Approach.EXTENDER.value, Approach.LEDGER.value):
        raise ValueError(
            f"scheduler_name is {scheduler_name!r}; write 'escher' or 'escher-ledger'. Gangs without an extender are"
            " run by the application itself: see escher_k8s.esl"
        )
    return Approach(scheduler_name)
