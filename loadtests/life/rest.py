"""Rest: when nothing disturbs any more, whoever could run runs; asked of the API server by a first fit of its own.

Knows pods and free CPU (nothing else is short in these clusters); must not know the ledger.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from extender.sim.kinds import POD, Json
from extender.sim.store import Store
from loadtests.life.seeing import (
    GROUP_LABEL,
    OURS,
    cpu_of,
    free_cpu,
    gang_of,
    is_gated,
    is_leaving,
    is_of_daemon_set,
    is_over,
    label,
    name,
    node_of,
    quorum_said,
    scheduler_of,
)
from loadtests.life.works import POD_GROUP

OUR_GATE = "escher.dev/gang"


def that_could_run(store: Store, *, groups_installed: bool) -> list[str]:
    """Gangs and pods of ours that are pending and fit into what is free, in words."""
    gangs: dict[str, list[Json]] = defaultdict(list)
    alone: list[Json] = []
    for pod in store.list(POD):
        if scheduler_of(pod) not in OURS or is_leaving(pod):
            continue
        if (gang := gang_of(pod)) and not (_is_grouped(pod) and not groups_installed):
            gangs[gang].append(pod)
        elif not is_over(pod):
            alone.append(pod)
    free = free_cpu(store)
    found = []
    for gang, pods in sorted(gangs.items()):
        quorum = _quorum(store, pods)
        living = [pod for pod in pods if not is_over(pod)]
        pending = [pod for pod in living if not node_of(pod) and not _is_gated_by_others(pod)]
        succeeded = sum(pod["status"].get("phase") == "Succeeded" and bool(node_of(pod)) for pod in pods)
        placed = sum(bool(node_of(pod)) for pod in living) + succeeded
        if not pending or quorum is None:
            continue
        needed = max(1, quorum - placed)
        if len(pending) >= needed and _fit(sorted(pending, key=cpu_of)[:needed], free):
            found.append(f"gang {gang}: {placed} of {quorum} are placed, and {needed} of {len(pending)} pending fit")
    for pod in alone:
        if not node_of(pod) and not is_gated(pod) and not is_of_daemon_set(pod) and _fit([pod], free):
            found.append(f"pod {pod['metadata']['namespace']}/{name(pod)} fits")
    return found


def _quorum(store: Store, pods: Iterable[Json]) -> int | None:
    """The most that its living members ask for; None: its PodGroup is not there."""
    said = 0
    for pod in pods:
        if _is_grouped(pod):
            group = store.get(POD_GROUP, pod["metadata"]["namespace"], label(pod, GROUP_LABEL))
            if group is None:
                return None
            said = max(said, group["spec"]["minMember"])
        elif not is_over(pod):
            said = max(said, quorum_said(pod))
    return said


def _is_grouped(pod: Json) -> bool:
    return not quorum_said(pod) and bool(label(pod, GROUP_LABEL))


def _is_gated_by_others(pod: Json) -> bool:
    return any(gate["name"] != OUR_GATE for gate in pod["spec"].get("schedulingGates") or ())


def _fit(pods: Iterable[Json], free: dict[str, int]) -> bool:
    """Largest first, each where the least is left: if this finds no place for all, there may still be one."""
    left = dict(free)
    for asked in sorted(map(cpu_of, pods), reverse=True):
        on = min((node for node, has in left.items() if has >= asked), key=lambda node: left[node], default=None)
        if on is None:
            return False
        left[on] -= asked
    return True
