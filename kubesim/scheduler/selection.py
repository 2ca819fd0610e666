"""Selection: finds a node for a pod, by filters over a sample of nodes, extenders and scores.

It runs one attempt at a time and fills its Diagnosis. It keeps only the start of the next sample.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from kubesim.scheduler.config import Profile
from kubesim.scheduler.extender_client import ExtenderFailed
from kubesim.scheduler.extenders import Extender
from kubesim.scheduler.plugins import filters
from kubesim.scheduler.plugins.filters import Filters
from kubesim.scheduler.plugins.hints import EXTENDER
from kubesim.scheduler.plugins.preferences import preferences
from kubesim.scheduler.plugins.scoring import score, shape
from kubesim.scheduler.plugins.topology_spread import spread_scores
from kubesim.scheduler.state.cache import Cache, NodeInfo
from kubesim.scheduler.state.nominator import Nominator
from kubesim.scheduler.state.seen import SeenPod
from kubesim.scheduler.state.verdicts import CannotSchedule, Diagnosis, No, NoNodes

_LEAST_NODES = 100
_LEAST_PERCENT = 5


class Attempt:
    """One attempt for a pod: its filters and its result."""

    def __init__(self, pod: SeenPod, profile: Profile, cache: Cache, nominator: Nominator) -> None:
        self.pod = pod
        self.profile = profile
        self.nodes = len(cache.all())
        """The number of nodes when the attempt began."""
        self.diagnosis = Diagnosis()
        self._filters = Filters(pod, profile, cache)
        self._nominator = nominator

    def refusal(self, info: NodeInfo, away: Sequence[SeenPod] = ()) -> No | None:
        """None if the node can have the pod, also with equal or more important nominated pods.

        `away`: pods that count as removed; `info` no longer has them.
        """
        around = self._filters.environment
        if not self._nominator and (around is None or not away):
            return self._filters.refusal(info)
        nominated = [
            other
            for other in self._nominator.of(info.name)
            if other.priority >= self.pod.priority and other.uid != self.pod.uid
        ]
        if around is not None and (away or nominated):
            assert info.node is not None
            around = around.copy()
            for other in away:
                around.count(other, info.node, -1)
        if nominated:
            fuller, closer = info.copy(), around.copy() if around is not None else None
            for other in nominated:
                fuller.add(other)
                if closer is not None and info.node is not None:
                    closer.count(other, info.node)
            if (verdict := self._filters.refusal(fuller, closer)) is not None:
                return verdict
        return self._filters.refusal(info, around)


class Selection:
    """`percentage`: percentageOfNodesToScore for profiles without their own."""

    def __init__(
        self, cache: Cache, nominator: Nominator, extenders: Sequence[Extender], percentage: int, rng: random.Random
    ) -> None:
        self._cache = cache
        self._nominator = nominator
        self._extenders = extenders
        self._percentage = percentage
        self._rng = rng
        self._start = 0

    def attempt(self, pod: SeenPod, profile: Profile) -> Attempt:
        return Attempt(pod, profile, self._cache, self._nominator)

    async def choose(self, attempt: Attempt) -> str | None:
        """The node's name, or None (see the diagnosis). Raises NoNodes, CannotSchedule."""
        if not self._cache.all():
            raise NoNodes
        try:
            feasible = await self._feasible(attempt)
        except ExtenderFailed as error:
            raise CannotSchedule(str(error)) from error
        if not feasible:
            return None
        return feasible[0].name if len(feasible) == 1 else await self._best(attempt.pod, feasible)

    def sample_size(self, profile: Profile, nodes: int) -> int:
        """How many feasible nodes end the search."""
        if nodes < _LEAST_NODES:
            return nodes
        percentage = self._percentage if profile.percentage is None else profile.percentage
        if percentage == 0:
            percentage = max(50 - nodes // 125, _LEAST_PERCENT)
        return max(nodes * percentage // 100, _LEAST_NODES)

    async def _feasible(self, attempt: Attempt) -> list[NodeInfo]:
        pod, diagnosis = attempt.pod, attempt.diagnosis
        everywhere = self._cache.all()
        names, conflict = filters.named_nodes(pod.raw)
        if conflict:
            diagnosis.before = conflict
            diagnosis.absent = No(filters.NODE_AFFINITY, (conflict,), True)
            diagnosis.rejectors[filters.NODE_AFFINITY] = None
            return []
        if names is not None:
            diagnosis.rejectors[filters.NODE_AFFINITY] = None
        nominated = self._cache.get(pod.nominated) if pod.nominated else None
        if nominated is not None:
            try:
                passed = await self._pass_extenders(attempt, self._sample(attempt, [nominated]))
            except ExtenderFailed:
                passed = []
            if passed:
                return passed
        nodes: Sequence[NodeInfo] = everywhere
        if names is not None:
            nodes = [info for name in sorted(names) if (info := self._cache.get(name)) is not None]
            why = f"node(s) didn't satisfy plugin(s) [{filters.NODE_AFFINITY}]"
            diagnosis.absent = No("", (why,), True)
        feasible = self._sample(attempt, nodes)
        self._start = (self._start + len(feasible) + len(diagnosis.nodes)) % len(everywhere)
        passed = await self._pass_extenders(attempt, feasible)
        if len(passed) != len(feasible):
            diagnosis.rejectors[EXTENDER] = None
        return passed

    def _sample(self, attempt: Attempt, nodes: Sequence[NodeInfo]) -> list[NodeInfo]:
        """Nodes that pass the filters, up to the sample size, from where the last sample ended."""
        feasible: list[NodeInfo] = []
        enough = self.sample_size(attempt.profile, len(nodes))
        refusal, refuse = attempt.refusal, attempt.diagnosis.refuse
        start = self._start
        for index in range(len(nodes)):
            info = nodes[(start + index) % len(nodes)]
            verdict = refusal(info)
            if verdict is not None:
                refuse(info.name, verdict)
                continue
            feasible.append(info)
            if len(feasible) == enough:
                break
        return feasible

    async def _pass_extenders(self, attempt: Attempt, feasible: list[NodeInfo]) -> list[NodeInfo]:
        pod, nodes = attempt.pod, attempt.diagnosis.nodes
        for extender in self._extenders:
            if not feasible:
                break
            if not extender.is_interested(pod):
                continue
            try:
                passed, failed, unresolvable = await extender.filter(pod, feasible)
            except ExtenderFailed:
                if extender.config.ignorable:
                    continue
                raise
            for name, why in unresolvable.items():
                nodes[name] = No("", (why,), True)
            for name, why in failed.items():
                if name not in unresolvable:
                    nodes[name] = No("", (why,))
            feasible = passed
        return feasible

    async def _best(self, pod: SeenPod, feasible: Sequence[NodeInfo]) -> str:
        """The node with the highest score; a random one of several."""
        asking = shape(pod)
        scores = {info.node.name: score(info, asking) for info in feasible if info.node is not None}
        for liking in (preferences(pod, feasible), spread_scores(pod, feasible, self._cache.all())):
            for name, more in liking.items():
                scores[name] += more
        asked = [
            extender.prioritize(pod, list(feasible)) for extender in self._extenders if extender.is_interested(pod)
        ]
        for answer in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(answer, ExtenderFailed):
                continue
            if isinstance(answer, BaseException):
                raise answer
            for name, more in answer.items():
                if name in scores:
                    scores[name] += more
        highest = max(scores.values())
        return self._rng.choice([name for name, reached in scores.items() if reached == highest])
