"""What dead runs of gangs have left in a cluster, read from ghosts' labels and nodes' keys.

A run is known by its token, which its ghosts and keys carry. Unless the application chose the token, its first six
characters name the *instance*: the process that runs the gang. Ghosts have it as a label, too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from extender.core.cluster import Pod
from extender.core.names import DOMAIN, GangKey
from extender.esl.gangs.gang_members import Place
from extender.esl.gangs.gang_spec import APPLICATION_DOMAIN
from extender.kube.names import NodeName, ResourceKey

GHOST_LABEL = f"{DOMAIN}/ghost"
"""The gang that the ghost belongs to."""
RUN_LABEL = f"{DOMAIN}/ghost-run"
KEY_LABEL = f"{DOMAIN}/ghost-key"
"""The key of the room that the ghost holds, without the domain."""
INSTANCE_LABEL = f"{DOMAIN}/ghost-instance"

INSTANCE_LENGTH = 6
_KEY = re.compile(rf"(?P<gang>.+)-(?:\d+|all)-(?P<run>(?P<instance>[0-9a-z]{{{INSTANCE_LENGTH}}})[0-9a-z]{{2}})")

Keys = Mapping[NodeName, Collection[ResourceKey]]
"""The resources that each node has."""


@dataclass(slots=True)
class Leftover:
    """What is left of one run."""

    gang: GangKey
    run: str
    ghosts: list[tuple[Pod, ResourceKey]] = field(default_factory=list)
    """Each ghost with the key whose room it holds."""
    members: list[tuple[Pod, ResourceKey]] = field(default_factory=list)
    """Each member with the key by which it is recognised."""
    places: list[Place] = field(default_factory=list)
    """Where the run's resources still are."""


def run_token(instance: str, number: int) -> str:
    """The token of the instance's run of that number; tokens repeat after 1296 runs."""
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"
    return instance + digits[number // 36 % 36] + digits[number % 36]


def instances(namespace: str, pods: Iterable[Pod], keys: Keys) -> set[str]:
    """The instances found there; keys without a ghost count only in `APPLICATION_DOMAIN`."""
    found = {pod.labels[INSTANCE_LABEL] for pod in pods if INSTANCE_LABEL in pod.labels}
    for key in {key for has in keys.values() for key in has if key.startswith(f"{APPLICATION_DOMAIN}/")}:
        if (read := _read(namespace, key)) is not None:
            found.add(read["instance"])
    return found


def left_behind(namespace: str, pods: Collection[Pod], keys: Keys, dead: Collection[str]) -> list[Leftover]:
    """What is left of every run of these dead instances."""
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
