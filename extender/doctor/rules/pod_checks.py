"""Checks of pods: without the mark, at Escher's gate without effect, or of other schedulers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from extender.core.gang_ask import GANG_GATE, GANG_LABEL, MIN_MEMBER, POD_GROUP_LABEL
from extender.core.names import DOMAIN, MANAGED, in_domain
from extender.doctor.facts import Facts, Json, Part, metadata_of, named, scheduler_of, some, spec_of
from extender.doctor.findings import Check, Found, Severity
from extender.doctor.scheduler_file import SchedulerFile

_OF_PLAYED_KUBELETS = {f"{DOMAIN}/{name}" for name in ("run-seconds", "stop-seconds", "stop-exit-code")}
_SYSTEM = "kube-system"
_NAME_LABEL, _OUR_NAME = "app.kubernetes.io/name", "escher"
_OF_EVERY_NODE = ("DaemonSet", "Node")


def _resources(pod: Json) -> set[str]:
    """The names of all resources that its containers ask for."""
    spec = spec_of(pod)
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    said = [each.get("resources") or {} for each in containers]
    return {name for each in said for field in ("requests", "limits") for name in each.get(field) or ()}


def at_our_gate(pod: Json) -> bool:
    return any(each.get("name") == GANG_GATE for each in spec_of(pod).get("schedulingGates") or ())


def needs_us(pod: Json) -> bool:
    """As in deploy/policies/mark-pods.yaml, for any scheduler."""
    metadata = metadata_of(pod)
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    return (
        POD_GROUP_LABEL in labels
        or any(map(in_domain, labels))
        or any(in_domain(key) and key not in _OF_PLAYED_KUBELETS for key in annotations)
        or at_our_gate(pod)
        or any(map(in_domain, _resources(pod)))
    )


def _unmarked(facts: Facts) -> Iterator[Found]:
    if not facts.relies_on_the_mark:
        return
    missed = [
        named(pod)
        for pod in facts.cluster.waiting_pods()
        if scheduler_of(pod) in facts.ours and needs_us(pod) and MANAGED not in _resources(pod)
    ]
    if missed:
        wrong = f"it needs Escher but does not request {MANAGED}: Escher refuses such pods ({some(missed)})"
        mend = "Apply deploy/policies/mark-pods.yaml, and create it again: a pod's requests are immutable."
        yield Found(f"Pod {missed[0]}", wrong, mend)


def _gated_for_nobody(facts: Facts) -> Iterator[Found]:
    gated = [pod for pod in facts.cluster.waiting_pods() if at_our_gate(pod) and scheduler_of(pod) not in facts.ours]
    for pod in gated[:1]:
        wrong = (
            f"it waits at Escher's gate, but its schedulerName {scheduler_of(pod)} is not Escher's: the gate stays "
            f"(on {len(gated)} pods)"
        )
        mend = f"Run escher doctor --release-gates --namespace {metadata_of(pod).get('namespace')}; gate no such pods."
        yield Found(f"Pod {named(pod)}", wrong, mend)


def _gated_without_service(facts: Facts) -> Iterator[Found]:
    gated = [named(pod) for pod in facts.cluster.waiting_pods() if at_our_gate(pod) and scheduler_of(pod) in facts.ours]
    if gated and facts.service.unreachable:
        wrong = f"{some(gated)} wait at Escher's gate, and no service answers that could remove it"
        mend = "Start the service, or release them without it: escher doctor --release-gates."
        yield Found(f"Pod {gated[0]}", wrong, mend)


def _asks_another(facts: Facts) -> Iterator[Found]:
    asking: dict[str, list[str]] = {}
    for pod in facts.cluster.waiting_pods():
        metadata = metadata_of(pod)
        said = GANG_LABEL in (metadata.get("labels") or {}) or MIN_MEMBER in (metadata.get("annotations") or {})
        if said and scheduler_of(pod) not in facts.ours and not at_our_gate(pod):
            asking.setdefault(scheduler_of(pod), []).append(named(pod))
    for scheduler, names in asking.items():
        wrong = f"it names a gang, but its schedulerName {scheduler} is not Escher's: it is ignored ({some(names)})"
        yield Found(f"Pod {names[0]}", wrong, f"Set schedulerName: {facts.ours[0]} in what creates them.")


def _needs_itself(facts: Facts) -> Iterator[Found]:
    """A stopped Escher would never start again. Recognised by the labels of the chart."""
    asks_about_all = {
        profile for file in facts.files if _asks_about_every_pod(facts, file) for profile in file.profiles
    }
    for each in facts.cluster.pods:
        metadata, scheduler = metadata_of(each), scheduler_of(each)
        if (metadata.get("labels") or {}).get(_NAME_LABEL) != _OUR_NAME:
            continue
        if scheduler in facts.ours or scheduler in asks_about_all:
            wrong = f"it is a pod of Escher itself, but schedulerName {scheduler} places no pod without Escher"
        elif at_our_gate(each) or any(map(in_domain, _resources(each))):
            wrong = f"it is a pod of Escher itself, but it waits at Escher's gate or requests a resource of {DOMAIN}"
        else:
            continue
        mend = "Use a scheduler that does not ask Escher about it, and no gate, as deploy/chart does."
        yield Found(f"Pod {named(each)}", wrong, mend)


def _asks_about_every_pod(facts: Facts, file: SchedulerFile) -> bool:
    return any(entry.of_every_pod and not entry.said.get("ignorable") for entry in facts.entries_of(file))


def _foreign(facts: Facts) -> Iterator[Found]:
    """DaemonSet pods, mirror pods and system pods do not count: their room is expected."""
    running = [pod for pod in facts.cluster.pods if (pod.get("status") or {}).get("phase") in ("Pending", "Running")]
    shared = {spec_of(pod).get("nodeName") for pod in running if scheduler_of(pod) in facts.ours} - {None, ""}
    others: Counter[str] = Counter()
    for pod in running:
        metadata = metadata_of(pod)
        owners = {each.get("kind") for each in metadata.get("ownerReferences") or ()}
        of_system = metadata.get("namespace") == _SYSTEM or owners & set(_OF_EVERY_NODE)
        if scheduler_of(pod) not in facts.ours and not of_system and spec_of(pod).get("nodeName") in shared:
            others[scheduler_of(pod)] += 1
    for scheduler, count in others.most_common():
        wrong = f"{count} of its pods are on nodes with Escher's pods: it does not know of reservations"
        mend = "Separate them by taints or node labels, or place these pods by a profile that asks Escher."
        yield Found(f"scheduler {scheduler}", wrong, mend)


CHECKS = (
    Check("pod-unmarked", "waiting pods that need Escher and have no mark", _unmarked, (Part.PODS,)),
    Check("gate-of-nobody", "pods at Escher's gate for other schedulers", _gated_for_nobody, (Part.PODS,)),
    Check(
        "gate-without-service", "pods at Escher's gate, but no service answers", _gated_without_service, (Part.PODS,)
    ),
    Check("needs-itself", "pods of Escher that only Escher could place", _needs_itself, (Part.PODS,)),
    Check(
        "gang-elsewhere",
        "waiting members of gangs whose `schedulerName` is not Escher's",
        _asks_another,
        (Part.PODS,),
        Severity.NOTE,
    ),
    Check(
        "foreign-scheduler",
        "pods of other schedulers on nodes with Escher's pods",
        _foreign,
        (Part.PODS,),
        Severity.NOTE,
    ),
)
