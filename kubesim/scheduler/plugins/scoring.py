"""Scoring: rates nodes that can have a pod by free room and by balance.

It has NodeResourcesFit (LeastAllocated) and NodeResourcesBalancedAllocation over cpu and memory, in kube-scheduler's
integers. `preferences` and `topology_spread` score preferences. Preferred pod affinity and images are ignored.
"""

from __future__ import annotations

from extender.kube.names import CPU, MEMORY
from kubesim.scheduler.state.cache import NodeInfo, Shape
from kubesim.scheduler.state.seen import SeenPod

_FULL = 100


_MOST_SHAPES = 64


def shape(pod: SeenPod) -> Shape:
    """The shape of a pod; pods of one shape have equal scores."""
    requests = pod.requests
    return pod.scored_cpu, pod.scored_memory, requests.get(CPU, 0), requests.get(MEMORY, 0)


def score(info: NodeInfo, pod: Shape) -> int:
    """The sum of the plugins' weighted scores for this node."""
    known = info.scores.get(pod)
    if known is None:
        if len(info.scores) >= _MOST_SHAPES:
            info.scores.clear()
        known = info.scores[pod] = _score(info, *pod)
    return known


def _score(info: NodeInfo, scored_cpu: int, scored_memory: int, asked_cpu: int, asked_memory: int) -> int:
    assert info.node is not None
    there = info.node.allocatable
    cpu, memory = there.get(CPU, 0), there.get(MEMORY, 0)
    weights = total = 0
    if cpu:
        weights += 1
        total += _left(info.scored_cpu + scored_cpu, cpu)
    if memory:
        weights += 1
        total += _left(info.scored_memory + scored_memory, memory)
    least = total // weights if weights else 0
    if not asked_cpu and not asked_memory:
        return least
    if not cpu or not memory:
        return least + _FULL // 2 + _FULL // 4
    used_cpu, used_memory = info.requested.get(CPU, 0), info.requested.get(MEMORY, 0)
    after = _balance((used_cpu + asked_cpu) / cpu, (used_memory + asked_memory) / memory)
    before = _balance(used_cpu / cpu, used_memory / memory)
    return least + _FULL // 2 + (_FULL // 2 + after - before) // 2


def _left(used: int, there: int) -> int:
    return 0 if used > there else (there - used) * _FULL // there


def _balance(cpu: float, memory: float) -> int:
    return int((1 - abs(min(cpu, 1.0) - min(memory, 1.0)) / 2) * _FULL)
