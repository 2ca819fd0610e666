"""Policies that an application runs by itself (AppSpace), with node status alone: no service is needed.

An ESL decides: it is told events and the time, and answers what is to be done. Home and contract are `extender.esl`;
here are its names, and `AppSpace`, which runs the gang ESL on a cluster port of the application's own.
"""

from __future__ import annotations

from escher_k8s.app_space import AppSpace, ClusterPort, Gone, Refused, TryAgain, pod_seen
from extender.core.cluster import Pod
from extender.core.names import GangKey
from extender.esl import GhostPhase, gang
from extender.esl.base import (
    CapacityConfirmed,
    CapacitySeen,
    Change,
    CreateGhost,
    DeleteGhost,
    Effect,
    EffectRefused,
    Esl,
    Event,
    EvictMember,
    Ghost,
    News,
    PodGone,
    PodRequirement,
    PodSeen,
    RemoveCapacity,
    Report,
    SetCapacity,
    TimePassed,
)
from extender.esl.gang_run import GangFailed, GangRun
from extender.esl.gang_spec import Approach, GangSpec
from extender.esl.gang_times import Times
from extender.esl.gang_turns import GangEsl, Space
from extender.esl.ghost_manifest import ghost_manifest

__all__ = [
    "AppSpace",
    "Approach",
    "CapacityConfirmed",
    "CapacitySeen",
    "Change",
    "ClusterPort",
    "CreateGhost",
    "DeleteGhost",
    "Effect",
    "EffectRefused",
    "Esl",
    "Event",
    "EvictMember",
    "GangEsl",
    "GangFailed",
    "GangKey",
    "GangRun",
    "GangSpec",
    "Ghost",
    "GhostPhase",
    "Gone",
    "News",
    "Pod",
    "PodGone",
    "PodRequirement",
    "PodSeen",
    "Refused",
    "RemoveCapacity",
    "Report",
    "SetCapacity",
    "Space",
    "TimePassed",
    "Times",
    "TryAgain",
    "gang",
    "ghost_manifest",
    "pod_seen",
]
