"""Checks of replicas: only one of several services decides, and another can take over.

A pod is one of several if it has the label that deploy/ sets with leader election, or by the settings.
"""

from __future__ import annotations

from collections.abc import Iterator

from extender.doctor.facts import Facts, Json, Part, metadata_of, named, some
from extender.doctor.findings import Check, Found, Severity

_OURS = {"app.kubernetes.io/name": "escher", "app.kubernetes.io/component": "service"}
_ELECTS = ("leader-election", "enabled")


def _replicas(facts: Facts) -> dict[tuple[str, str], list[Json]]:
    """Pods of the service that have not ended, by namespace and instance."""
    found: dict[tuple[str, str], list[Json]] = {}
    for pod in facts.cluster.pods:
        labels = metadata_of(pod).get("labels") or {}
        phase = (pod.get("status") or {}).get("phase", "Pending")
        if _OURS.items() <= labels.items() and phase not in ("Succeeded", "Failed"):
            instance = str(labels.get("app.kubernetes.io/instance", ""))
            found.setdefault((str(metadata_of(pod).get("namespace")), instance), []).append(pod)
    return found


def _elects(facts: Facts, pod: Json) -> bool:
    return facts.settings.leader_election or _ELECTS in (metadata_of(pod).get("labels") or {}).items()


def _several_decide(facts: Facts) -> Iterator[Found]:
    for pods in _replicas(facts).values():
        alone = [named(pod) for pod in pods if not _elects(facts, pod)]
        if alone and len(pods) > 1:
            wrong = f"{len(pods)} pods of the service, and {some(alone)} run without leader_election: each of "
            wrong += "them decides, and capacity is reserved twice"
            mend = "Scale it to 1, or to 0 and then enable leader election (in the chart leaderElection.enabled: true)."
            yield Found(alone[0], wrong, mend)


def _nobody_follows(facts: Facts) -> Iterator[Found]:
    for pods in _replicas(facts).values():
        if len(pods) == 1 and _elects(facts, pods[0]):
            wrong = "it uses leader election but is the only replica: while it is down, no other takes over"
            yield Found(named(pods[0]), wrong, "Run two (in the chart replicas: 2), or find out why only one runs.")


def _nobody_is_led(facts: Facts) -> Iterator[Found]:
    if facts.settings.leader_election and facts.settings.leader_service is None:
        wrong = "leader_election is true without leader_service: no Service routes to the leader, and "
        wrong += "the other replicas answer kube-scheduler with 503"
        mend = "Set leader_service to a Service without selector; the leader points it to itself."
        yield Found("settings", wrong, mend)


def _installed_twice(facts: Facts) -> Iterator[Found]:
    there = [named(pods[0]) for _, pods in sorted(_replicas(facts).items())]
    if len(there) > 1:
        wrong = (
            f"Escher is installed {len(there)} times (pods {some(there)}): each allocates what the others believe to "
        )
        wrong += "be free, and all write the same EphemeralResources"
        mend = "Uninstall all but one, or give each its own schedulers and nodes, as docs/scaling.md says."
        yield Found(there[1], wrong, mend)


CHECKS = (
    Check("installed-twice", "pods of several installations", _installed_twice, (Part.PODS,), Severity.NOTE),
    Check("several-decide", "several pods of the service without leader election", _several_decide, (Part.PODS,)),
    Check(
        "replica-alone",
        "leader election with one pod of the service",
        _nobody_follows,
        (Part.PODS,),
        Severity.NOTE,
    ),
    Check("leader-unled", "`leader_election` without `leader_service`", _nobody_is_led, (Part.SETTINGS,)),
)
