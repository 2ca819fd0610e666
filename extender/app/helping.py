"""Helping: explanations with what would help, each thing tried on a copy of the cluster before it is told.

A remedy is told if, when it is supposed, whoever waits has a place by the rules that decide: as `what-if` would answer.
Of what can be had in numbers the least that helps is told. Only so much is tried for one explanation, and for so long;
where nothing could be tried, what rules say stands alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from extender.app.explain import Explain
from extender.app.explanation import Explanation, Remedy
from extender.app.management import ManagementError, WhatIfCalls
from extender.app.ports import Clock
from extender.app.remedies import Ladder, Remedies
from extender.app.supposition import GangThere, PodThere, Question, Wondered
from extender.app.tables import Tables
from extender.core.names import GangKey
from extender.kube.errors import Unavailable

MOST_TRIED = 40
_MOST_OF_A_FAMILY = 12
_MOST_SECONDS = 3.0
NOTHING = Remedy("wait", ())


class Helping:
    """Implements `management.ExplainCalls`. `explain`: what is explained without."""

    def __init__(self, tables: Tables, explain: Explain, what_if: WhatIfCalls) -> None:
        self._tables = tables
        self._explain = explain
        self._remedies = Remedies(tables, explain.why_withheld)
        self._what_if = what_if

    async def pod(self, namespace: str, name: str) -> Explanation:
        """Raises NotFound."""
        found = self._explain.pod(namespace, name)
        if not found.for_a_place:
            return found
        pod = self._explain.find(namespace, name)
        if (gang := self._tables.gangs.of(pod.uid)) is not None:
            return await self._with_help(found, GangThere(gang.key), self._remedies.for_gang(gang))
        return await self._with_help(found, PodThere(namespace, name), self._remedies.for_pod(pod))

    async def gang(self, key: GangKey) -> Explanation:
        """Raises NotFound."""
        found = self._explain.gang(key)
        gang = self._tables.gangs.by_key[key]
        return (
            await self._with_help(found, GangThere(key), self._remedies.for_gang(gang)) if found.for_a_place else found
        )

    async def _with_help(
        self, found: Explanation, question: Question, families: Iterator[Iterator[Ladder]]
    ) -> Explanation:
        trial = Trial(self._what_if, question, self._tables.clock)
        if await trial.helps(NOTHING):
            return found
        if trial.is_over:
            # What cannot be tried need not be thought of.
            return replace(found, tried=[])
        # All that may help is thought of at once: the cluster moves on while it is tried.
        thought_of = [list(islice(family, _MOST_OF_A_FAMILY)) for family in families]
        tried = [helps for family in thought_of if (helps := await trial.first_of(family)) is not None]
        return replace(found, tried=tried)


class Trial:
    """What is tried for one that waits."""

    def __init__(self, what_if: WhatIfCalls, question: Question, clock: Clock) -> None:
        self._what_if = what_if
        self._question = question
        self._clock = clock
        self._until = clock.steady() + _MOST_SECONDS
        self._left = MOST_TRIED

    async def first_of(self, family: list[Ladder]) -> Remedy | None:
        """The first of these that helps."""
        for ladder in family:
            if (remedy := await self._lowest(ladder)) is not None:
                return remedy
        return None

    async def _lowest(self, ladder: Ladder) -> Remedy | None:
        """The lowest rung that helps; below it, one was tried that does not, unless it is the first."""
        below, at = ladder.lowest - 1, ladder.guess
        step = 1
        while not await self.helps(ladder.rung(at)):
            if at == ladder.highest or self.is_over:
                return None
            below, at, step = at, min(ladder.highest, at + step), 2 * step
        while at - below > 1 and not self.is_over:
            # The guess is mostly right: what is one lower is tried first.
            middle = at - 1 if at == ladder.guess else (below + at) // 2
            if await self.helps(ladder.rung(middle)):
                at = middle
            else:
                below = middle
        return ladder.rung(at)

    @property
    def is_over(self) -> bool:
        return self._left <= 0 or self._clock.steady() >= self._until

    async def helps(self, remedy: Remedy) -> bool:
        """Whether it was tried, and whoever waits had a place then."""
        if self.is_over:
            return False
        self._left -= 1
        try:
            return (await self._what_if.wonder(Wondered(remedy.supposed, self._question))).fits
        except ManagementError:
            # What it is about is gone by now.
            return False
        except Unavailable:
            self._left = 0
            return False
