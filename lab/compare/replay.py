"""Replay: windows of a real cluster's trace as trials, with gangs. Pure, except for reading.

A window goes from a drawn pod on until a given number of gangs have come, and is replayed in `SECONDS`.

- The pods are those that the trace's cluster placed, that request CPU, and that take any GPU model. A share of a GPU
  takes a whole one, as on clusters that do not share GPUs.
- The trace has no gangs. Two to 64 pods of equal shape, created within a minute of the first, are taken as a gang.
  It is requested when the first was created, and ends when its last member did. All others are ordinary pods.
- Pods that ran when the window began are on the nodes already, by first fit, until they ended. Pods that outlast
  the window end a second after it, so that everything ends.
- Pods without room when they come, by first fit and in the trace's own time, are omitted.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from math import inf
from pathlib import Path
from random import Random

from extender.kube.names import CPU, MEMORY
from extender.shipped.errors import WrongUse
from lab.compare.trials.workloads import QUIET, Ask, Requests, Standing, Work
from lab.controlplane.nodes import GPU
from lab.controlplane.trace import TraceNode, TracePod, read_nodes, read_pods

MOST_PODS = 300
SECONDS = 20.0
MINUTE, LARGEST = 60, 64
NODES_FILE, PODS_FILE = "openb_node_list_*.csv", "openb_pod_list_*.csv"
_USUAL = {NODES_FILE: "openb_node_list_all_node.csv", PODS_FILE: "openb_pod_list_default.csv"}
"""The files to take if there are several, named as published."""
_AFTER = 1.0
_PATIENCE = 150.0
_TRIES = 1000
_PODS_OF_A_NODE = 50
"""It has room for 110, and some approaches put a ghost beside each member."""

Amounts = tuple[int, int, int, int]
"""CPU in thousandths, memory in MiB, GPUs, pods."""


@dataclass(frozen=True)
class Trace:
    """The cluster's nodes, and the pods that can be replayed, in the order of their creation."""

    nodes: Sequence[TraceNode]
    pods: Sequence[TracePod]


def nodes_file(folder: str) -> Path:
    """Raises WrongUse if the folder has none, or several without the usual one."""
    return _file(folder, NODES_FILE)


def files(folder: str) -> list[Path]:
    """The files that are read. Raises WrongUse."""
    return [nodes_file(folder), _file(folder, PODS_FILE)]


@lru_cache(maxsize=4)
def read(folder: str, nodes: int | None) -> Trace:
    """The trace with at most `nodes` of its nodes; None: all. Raises WrongUse."""
    there = read_nodes(nodes_file(folder), limit=nodes)
    pods = [pod for pod in read_pods(_file(folder, PODS_FILE)) if _can_be_replayed(pod)]
    return Trace(there, sorted(pods, key=lambda pod: (pod.created, pod.name)))


def _file(folder: str, pattern: str) -> Path:
    found = sorted(Path(folder).glob(pattern))
    usual = Path(folder) / _USUAL[pattern]
    if usual in found:
        return usual
    if len(found) != 1:
        raise WrongUse(f"--trace {folder}: there should be one {pattern}, found {len(found)}")
    return found[0]


def _can_be_replayed(pod: TracePod) -> bool:
    return pod.scheduled is not None and pod.cpu_milli > 0 and not pod.gpu_models


def work_of(trace: Trace, gangs: int, random: Random) -> Work:
    """The work of a random window with `gangs` gangs. Raises WrongUse if none is found."""
    for _ in range(_TRIES if trace.pods else 0):
        drawn = _window(trace, gangs, random.randrange(len(trace.pods)))
        if drawn is not None:
            return drawn
    raise WrongUse(
        f"--trace: no window with {gangs} gangs and at most {MOST_PODS} pods that have room was found in its"
        f" {len(trace.pods)} pods on {len(trace.nodes)} nodes; take more of its nodes"
    )


def together(pods: Iterable[TracePod]) -> list[list[TracePod]]:
    """Gangs, and single other pods, ordered by their first pod's creation; pods too."""
    groups: list[list[TracePod]] = []
    growing: dict[tuple[int, ...], list[TracePod]] = {}
    for pod in pods:
        shape = pod.cpu_milli, pod.memory_mib, pod.gpus, pod.gpu_milli
        group = growing.get(shape)
        if group is None or len(group) == LARGEST or pod.created - group[0].created > MINUTE:
            group = growing[shape] = []
            groups.append(group)
        group.append(pod)
    return groups


def _window(trace: Trace, wanted: int, first: int) -> Work | None:
    """The window that begins with this pod; None if it has too few gangs or too many pods."""
    began, rooms = trace.pods[first].created, _Rooms(trace.nodes)
    standing: list[tuple[TracePod, str]] = []
    for pod in trace.pods[:first]:
        if _scheduled(pod) <= began < _ended(pod) and (there := rooms.take([pod], _ended(pod))):
            standing.append((pod, there[0]))
    chosen: list[list[TracePod]] = []
    gangs = pods = 0
    # The slice contains all members of each gang that begins among the first `MOST_PODS`.
    for group in together(trace.pods[first : first + 2 * MOST_PODS]):
        if pods + len(group) > MOST_PODS:
            return None
        rooms.end_until(group[0].created)
        if rooms.take(group, max(map(_ended, group))):
            chosen.append(group)
            pods, gangs = pods + len(group), gangs + (len(group) > 1)
        if gangs == wanted:
            return _work(chosen, standing, began)
    return None


def _work(groups: Sequence[Sequence[TracePod]], standing: Sequence[tuple[TracePod, str]], began: int) -> Work:
    pace = SECONDS / max(1, groups[-1][0].created - began)
    end = SECONDS + _AFTER
    asks, numbers, others = list[Ask](), count(), count()
    for group in groups:
        at, is_gang = (group[0].created - began) * pace, len(group) > 1
        lasts = max(_ended(pod) - _scheduled(pod) for pod in group) * pace
        name = str(next(numbers)) if is_gang else f"o{next(others)}"
        asks.append(Ask(name, len(group), _requests(group[0]), at, min(lasts, end - at), is_gang))
    there = [
        Standing(str(number), node, _requests(pod), min((_ended(pod) - began) * pace, end))
        for number, (pod, node) in enumerate(standing)
    ]
    return Work(asks, end + _PATIENCE, QUIET, standing=there)


class _Rooms:
    """The free room on the nodes at the window's present time."""

    def __init__(self, nodes: Sequence[TraceNode]) -> None:
        self._left: dict[str, Amounts] = {
            node.name: (node.cpu_milli, node.memory_mib, node.gpus, _PODS_OF_A_NODE) for node in nodes
        }
        self._ends: list[tuple[float, str, Amounts]] = []

    def take(self, group: Sequence[TracePod], until: float) -> list[str]:
        """Places equal pods by first fit until `until`; their nodes, or [] if one has no room."""
        asked = (group[0].cpu_milli, group[0].memory_mib, group[0].gpus, 1)
        there: list[str] = []
        for node, left in self._left.items():
            fits = min(have // need for have, need in zip(left, asked, strict=True) if need)
            there += [node] * min(fits, len(group) - len(there))
            if len(there) == len(group):
                break
        if len(there) < len(group):
            return []
        for node in there:
            self._change(node, asked, -1)
            heapq.heappush(self._ends, (until, node, asked))
        return there

    def end_until(self, now: float) -> None:
        """Frees the room of pods that have ended by then."""
        while self._ends and self._ends[0][0] <= now:
            _, node, asked = heapq.heappop(self._ends)
            self._change(node, asked, 1)

    def _change(self, node: str, asked: Amounts, sign: int) -> None:
        cpu, memory, gpus, pods = (have + sign * each for have, each in zip(self._left[node], asked, strict=True))
        self._left[node] = cpu, memory, gpus, pods


def _requests(pod: TracePod) -> Requests:
    asked = ((CPU, pod.cpu_milli, "m"), (MEMORY, pod.memory_mib, "Mi"), (GPU, pod.gpus, ""))
    return {name: f"{amount}{unit}" for name, amount, unit in asked if amount}


def _scheduled(pod: TracePod) -> int:
    return pod.created if pod.scheduled is None else pod.scheduled


def _ended(pod: TracePod) -> float:
    return inf if pod.deleted is None else pod.deleted
