"""What runs of gangs that nobody runs any more have left in a cluster, told from ghosts' labels and nodes' keys.

A run is known by its token, which its ghosts and its keys bear. The first six characters of a token that the
application did not choose itself are those of its *instance*, the process that runs it; ghosts bear that as a label of
its own. Who is dead is not decided here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from extender.core.cluster import Pod
from extender.core.names import DOMAIN, GangKey
from extender.esl.gang_members import Place
from extender.esl.gang_spec import APPLICATION_DOMAIN
from extender.kube.names import NodeName, ResourceKey

GHOST_LABEL = f"{DOMAIN}/ghost"
"""Of which gang."""
RUN_LABEL = f"{DOMAIN}/ghost-run"
KEY_LABEL = f"{DOMAIN}/ghost-key"
"""What it holds room for, without the domain."""
INSTANCE_LABEL = f"{DOMAIN}/ghost-instance"

INSTANCE_LENGTH = 6
_KEY = re.compile(rf"(?P<gang>.+)-(?:\d+|all)-(?P<run>(?P<instance>[0-9a-z]{{{INSTANCE_LENGTH}}})[0-9a-z]{{2}})")

Keys = Mapping[NodeName, Collection[ResourceKey]]
"""Which resources each node has."""


@dataclass(slots=True)
class Leftover:
    """What is left of one run."""

    gang: GangKey
    run: str
    ghosts: list[tuple[Pod, ResourceKey]] = field(default_factory=list)
    """And what each holds room for."""
    members: list[tuple[Pod, ResourceKey]] = field(default_factory=list)
    """And by what each is known."""
    places: list[Place] = field(default_factory=list)
    """Where its resources still are."""


def run_token(instance: str, number: int) -> str:
    """The token of so many a run of the instance; after 1296 they come again."""
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"
    return instance + digits[number // 36 % 36] + digits[number % 36]


def instances(namespace: str, pods: Iterable[Pod], keys: Keys) -> set[str]:
    """Whoever has left, or has, anything there. Keys without a ghost count in the usual domain alone."""
    found = {pod.labels[INSTANCE_LABEL] for pod in pods if INSTANCE_LABEL in pod.labels}
    for key in {key for has in keys.values() for key in has if key.startswith(f"{APPLICATION_DOMAIN}/")}:
        if (read := _read(namespace, key)) is not None:
            found.add(read["instance"])
    return found


def left_behind(namespace: str, pods: Collection[Pod], keys: Keys, dead: Collection[str]) -> list[Leftover]:
    """What is left of every run of these instances."""
    mine = [pod for pod in pods if GHOST_LABEL in pod.labels and pod.labels.get(INSTANCE_LABEL) in dead]
    runs = {_part(ghost): (ghost.labels[GHOST_LABEL], ghost.labels.get(RUN_LABEL, "")) for ghost in mine}
    found: dict[tuple[str, str], Leftover] = {}

    def whose(key: str) -> Leftover | None:
        read = _read(namespace, key)
        run = runs.get(key.partition("/")[2])
        if run is None and read is not None and read["instance"] in dead:
            run = (read["gang"], read["run"])
        return None if run is None else found.setdefault(run, Leftover(GangKey(namespace, run[0]), run[1]))

    full: dict[str, ResourceKey] = {}
    for node, has in keys.items():
        for key in has:
            if (left := whose(key)) is not None:
                left.places.append((node, key))
                full[key.partition("/")[2]] = key
    for pod in pods:
        for key in pod.requests:
            if "/" in key and (left := whose(key)) is not None:
                left.members.append((pod, key))
                full[key.partition("/")[2]] = key
    for ghost in mine:
        key = full.get(_part(ghost), ResourceKey(f"{APPLICATION_DOMAIN}/{_part(ghost)}"))
        if (left := whose(key)) is not None:
            left.ghosts.append((ghost, key))
    return [left for left in found.values() if left.ghosts or left.places]


def _part(ghost: Pod) -> str:
    return ghost.labels.get(KEY_LABEL, "")


def _read(namespace: str, key: str) -> re.Match[str] | None:
    part = key.partition("/")[2]
    prefix = f"{namespace}."
    return _KEY.fullmatch(part[len(prefix) :]) if part.startswith(prefix) else None
