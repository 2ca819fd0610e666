"""Gates: lists the pods that wait at Escher's scheduling gate, and releases them without a service.

The only module of the doctor that changes something: it removes only Escher's gate, from exactly the listed pod.
"""

from __future__ import annotations

from typing import NamedTuple

from extender.adapters.kubernetes.writers.writers import ApiWaker
from extender.app.contracts.ports import PodRef
from extender.core.gang_ask import GANG_GATE, GANG_LABEL
from extender.doctor.facts import metadata_of, scheduler_of, spec_of
from extender.doctor.lists import listed
from extender.doctor.rules.pod_checks import at_our_gate
from extender.kube.client.requests import Requests
from extender.kube.errors import Gone, Refused, Unavailable
from extender.kube.names import PodUid


class Gated(NamedTuple):
    pod: PodRef
    gang: str
    """From its label; empty without one."""
    scheduler: str
    other_gates: tuple[str, ...]
    """Gates of others, behind which it keeps waiting."""


async def gated_pods(requests: Requests, namespace: str | None = None) -> list[Gated]:
    """The pods that wait at Escher's gate, sorted. Raises Unavailable, Refused."""
    where = ("namespaces", namespace) if namespace is not None else ()
    found = []
    # A pod that has a node has no gate.
    async for pod in listed(requests, "api", "v1", *where, "pods", fields="spec.nodeName="):
        if not at_our_gate(pod):
            continue
        metadata = metadata_of(pod)
        gates = tuple(str(each.get("name")) for each in spec_of(pod).get("schedulingGates") or ())
        found.append(
            Gated(
                PodRef(metadata["namespace"], metadata["name"], PodUid(metadata["uid"])),
                str((metadata.get("labels") or {}).get(GANG_LABEL, "")),
                scheduler_of(pod),
                tuple(each for each in gates if each != GANG_GATE),
            )
        )
    return sorted(found, key=lambda each: (each.pod.namespace, each.pod.name))


async def release(requests: Requests, pod: PodRef) -> str:
    """Removes Escher's gate from the pod. Returns why it failed; empty if gate or pod is gone."""
    try:
        await ApiWaker(requests).open_gate(pod)
    except Gone:
        return ""
    except (Refused, Unavailable) as error:
        return str(error)
    return ""
