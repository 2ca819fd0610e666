"""Remedy search: adds to explanations what would help, each tried on a copy of the cluster.

A remedy is reported if the pod or gang gets a placement when it is simulated, by the rules that decide, as `what-if`
would answer. For remedies with a number, the least that helps is reported. The tries for one explanation are limited in
number and in seconds. If nothing could be tried, only the remedies of the rules are given. All remedies are derived and
tried in one copy, so that no other call waits for that. Each try has a copy of the copy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice

from extender.app.cache.cache import Cache
from extender.app.contracts.errors import ManagementError
from extender.app.contracts.explanation import Explanation, Remedy
from extender.app.contracts.ports import Clock
from extender.app.contracts.simulation_request import GangThere, PodThere, Question, SimulationRequest, SimulationResult
from extender.app.explain.explain import Explain
from extender.app.explain.queries import gang_of, pod_of
from extender.app.explain.remedies import Ladder, Remedies
from extender.app.explain.simulate import Copied
from extender.core.names import GangKey
from extender.kube.errors import Unavailable

MOST_TRIED = 40
_MOST_OF_A_FAMILY = 12
_MOST_SECONDS = 3.0
NOTHING = Remedy("wait", ())

Simulate = Callable[[SimulationRequest], SimulationResult]


class RemedySearch:
    """Implements `api.ExplainCalls`. `explain`: gives the explanations without tries.

    `simulate` is called in a copy that `copied` makes, and does not change it."""

    def __init__(self, cache: Cache, explain: Explain, copied: Copied, simulate: Simulate) -> None:
        self._cache = cache
        self._explain = explain
        self._remedies = Remedies(cache, explain.why_withheld)
        self._copied = copied
        self._simulate = simulate

    async def pod(self, namespace: str, name: str, *, everywhere: bool = True) -> Explanation:
        """Raises NotFound."""
        return _seen(await self._pod(namespace, name, everywhere), None if everywhere else namespace)

    async def gang(self, key: GangKey, *, everywhere: bool = True) -> Explanation:
        """Raises NotFound, Invalid."""
        return _seen(await self._gang(key, everywhere), None if everywhere else key.namespace)

    async def _pod(self, namespace: str, name: str, everywhere: bool) -> Explanation:
        found = (self._explain if everywhere else self._explain.within(namespace)).pod(namespace, name)
        if not found.for_a_place:
            return found
        pod = pod_of(self._cache, namespace, name)
        if (gang := self._cache.gangs.of(pod.uid)) is not None:
            return await self._with_help(found, GangThere(gang.key), self._remedies.for_gang(gang))
        return await self._with_help(found, PodThere(namespace, name), self._remedies.for_pod(pod))

    async def _gang(self, key: GangKey, everywhere: bool) -> Explanation:
        explain = self._explain if everywhere else self._explain.within(key.namespace)
        found, gang = explain.gang(key), gang_of(self._cache, key)
        if not found.for_a_place:
            return found
        return await self._with_help(found, GangThere(gang.key), self._remedies.for_gang(gang))

    async def _with_help(
        self, found: Explanation, question: Question, families: Iterator[Iterator[Ladder]]
    ) -> Explanation:
        def tried() -> list[Remedy]:
            return Trial(self._simulate, question, self._cache.clock).of(families)

        try:
            self._cache.require_whole()
            return replace(found, tried=await self._copied.in_a_copy(tried, question.namespace))
        except Unavailable:
            return found


def _seen(found: Explanation, within: str | None) -> Explanation:
    """Removes the remedies that name objects of other namespaces."""
    if within is None:
        return found
    tried = [each for each in found.tried if {getattr(s, "namespace", within) for s in each.changes} <= {within}]
    return replace(found, tried=tried)


class Trial:
    """The tries for one waiting pod or gang."""

    def __init__(self, simulate: Simulate, question: Question, clock: Clock) -> None:
        self._simulate = simulate
        self._question = question
        self._clock = clock
        self._until = clock.steady() + _MOST_SECONDS
        self._left = MOST_TRIED

    def of(self, families: Iterator[Iterator[Ladder]]) -> list[Remedy]:
        """Returns the first remedy of each family that helps; none if it has a placement."""
        if self.helps(NOTHING):
            return []
        found = []
        for family in families:
            if self.is_over:
                # Remedies that cannot be tried need not be derived.
                break
            if (helps := self.first_of(islice(family, _MOST_OF_A_FAMILY))) is not None:
                found.append(helps)
        return found

    def first_of(self, family: Iterable[Ladder]) -> Remedy | None:
        """Returns the first of these that helps."""
        for ladder in family:
            if (remedy := self._lowest(ladder)) is not None:
                return remedy
        return None

    def _lowest(self, ladder: Ladder) -> Remedy | None:
        """Returns the lowest rung that helps; the one below it was tried, if there is one."""
        below, at = ladder.lowest - 1, ladder.guess
        step = 1
        while not self.helps(ladder.rung(at)):
            if at == ladder.highest or self.is_over:
                return None
            below, at, step = at, min(ladder.highest, at + step), 2 * step
        while at - below > 1 and not self.is_over:
            # The guess is mostly right: so the rung below it is tried first.
            middle = at - 1 if at == ladder.guess else (below + at) // 2
            if self.helps(ladder.rung(middle)):
                at = middle
            else:
                below = middle
        return ladder.rung(at)

    @property
    def is_over(self) -> bool:
        return self._left <= 0 or self._clock.steady() >= self._until

    def helps(self, remedy: Remedy) -> bool:
        """Returns whether the remedy was tried and gave a placement."""
        if self.is_over:
            return False
        self._left -= 1
        try:
            return self._simulate(SimulationRequest(remedy.changes, self._question)).fits
        except ManagementError:
            # The change is not possible.
            return False
        except Unavailable:
            self._left = 0
            return False
