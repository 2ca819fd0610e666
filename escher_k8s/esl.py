"""Policies that an application runs itself (AppSpace), with node status alone and no service.

An ESL decides: it gets events and the time, and returns effects. Its home and contract are `extender.esl`. Here are its
names, `AppSpace`, which runs the gang ESL on the application's own cluster port, and `PolicySpace`, which runs
policies.
"""

from __future__ import annotations

from escher_k8s.app_space import AppSpace
from escher_k8s.cluster_port import ClusterPort, Gone, Looked, PolicyPort, Refused, TryAgain
from escher_k8s.policy_space import PolicySpace
from escher_k8s.seen import node_seen, pod_seen
from extender.core.cluster import Node, Pod
from extender.core.names import GangKey
from extender.esl import GhostPhase, gang
from extender.esl.base import (
    CancelTask,
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
    LaunchTask,
    News,
    NodeGone,
    NodeSeen,
    Notice,
    PodGone,
    PodRequirement,
    PodSeen,
    RemoveCapacity,
    Report,
    SetCapacity,
    StopTask,
    TaskChange,
    TimePassed,
)
from extender.esl.compositions.alpha_zero import AlphaZero
from extender.esl.compositions.composed import AllOf, AnyOf
from extender.esl.compositions.fair_queueing import FairQueueing
from extender.esl.compositions.gandiva import Gandiva
from extender.esl.compositions.locality import Locality
from extender.esl.gangs.gang_run import GangFailed, GangRun
from extender.esl.gangs.gang_spec import Approach, GangSpec
from extender.esl.gangs.gang_times import Times
from extender.esl.gangs.gang_turns import GangEsl, Space
from extender.esl.gangs.ghost_manifest import ghost_manifest
from extender.esl.policies.anti_affinity import AntiAffinity, PairedAntiAffinity
from extender.esl.policies.balance import Balance, DynamicBalance
from extender.esl.policies.co_location import CoLocation, KnownGroup
from extender.esl.policies.data_locality import DataLocality
from extender.esl.policies.fair_share import FairShare, User
from extender.esl.policies.objective import Objective
from extender.esl.policies.packing import Packing
from extender.esl.policies.priority import Priority
from extender.esl.policies.queue import Queue
from extender.esl.policies.signal import Signal
from extender.esl.policies.soft import Soft
from extender.esl.runtime.policy_asks import Application
from extender.esl.runtime.policy_esl import UNLIMITED, PolicyEsl, Task
from extender.esl.runtime.view import View

__all__ = [
    "UNLIMITED",
    "AllOf",
    "AlphaZero",
    "AntiAffinity",
    "AnyOf",
    "AppSpace",
    "Application",
    "Approach",
    "Balance",
    "CancelTask",
    "CapacityConfirmed",
    "CapacitySeen",
    "Change",
    "ClusterPort",
    "CoLocation",
    "CreateGhost",
    "DataLocality",
    "DeleteGhost",
    "DynamicBalance",
    "Effect",
    "EffectRefused",
    "Esl",
    "Event",
    "EvictMember",
    "FairQueueing",
    "FairShare",
    "Gandiva",
    "GangEsl",
    "GangFailed",
    "GangKey",
    "GangRun",
    "GangSpec",
    "Ghost",
    "GhostPhase",
    "Gone",
    "KnownGroup",
    "LaunchTask",
    "Locality",
    "Looked",
    "News",
    "Node",
    "NodeGone",
    "NodeSeen",
    "Notice",
    "Objective",
    "Packing",
    "PairedAntiAffinity",
    "Pod",
    "PodGone",
    "PodRequirement",
    "PodSeen",
    "PolicyEsl",
    "PolicyPort",
    "PolicySpace",
    "Priority",
    "Queue",
    "Refused",
    "RemoveCapacity",
    "Report",
    "SetCapacity",
    "Signal",
    "Soft",
    "Space",
    "StopTask",
    "Task",
    "TaskChange",
    "TimePassed",
    "Times",
    "TryAgain",
    "User",
    "View",
    "gang",
    "ghost_manifest",
    "node_seen",
    "pod_seen",
]
