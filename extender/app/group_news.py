"""News of PodGroups: when the members of one are understood anew.

All members of a group at once: a gang of which half asks for something else is another's. So a large group costs its
namespace time: further news waits, the latest of each group alone, as if the watch were late. What waited is taken in
slices of whole groups, one between two ticks of the keeper, and namespaces take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from extender.app.ports import Clock
from extender.core.cluster import Pod
from extender.core.gangs.pod_groups import GroupName, PodGroup, PodGroups

SLICE = 200
"""Pods that are understood anew at once, or those of one group: some ten milliseconds."""
_REST = 0.002
"""Seconds a pod, after its PodGroup had it understood anew: some thirty times as long as that takes."""

_News = tuple[PodGroup, bool]
"""The group as it was last heard of, and whether it is gone."""


class GroupNews:
    """`understand`: these pods, as they are told of, ask for something else since."""

    def __init__(self, groups: PodGroups, clock: Clock, understand: Callable[[Iterable[Pod]], None]) -> None:
        self._groups = groups
        self._clock = clock
        self._understand = understand
        self._resting: dict[str, float] = {}
        """Until when no news of a namespace is taken."""
        self._waiting: dict[str, dict[GroupName, _News]] = {}
        """By namespace, the next in turn first."""

    def hear(self, group: PodGroup, *, gone: bool) -> None:
        """It is there and looks like this, or is gone."""
        if group.namespace in self._waiting or self._resting.get(group.namespace, 0.0) > self._clock.steady():
            self._waiting.setdefault(group.namespace, {})[group.key] = group, gone
        else:
            self._take(group, gone)

    def replace(self, groups: Iterable[PodGroup]) -> Iterator[None]:
        """These and no others exist, and those who name one are understood by that, once the slices are walked
        through."""
        listed = {group.key: group for group in groups}
        self._waiting.clear()
        if not self._groups.installed:
            self._understand(self._groups.replace(listed.values()))
            return
        known = {group.key: group for group in self._groups.known()}
        for name, group in sorted((known | listed).items()):
            self._waiting.setdefault(group.namespace, {})[name] = group, name not in listed
        # What is heard of one between two slices is newer.
        while self._waiting:
            self._take_slice(self._waiting)
            yield

    def uninstalled(self) -> None:
        """There is no such kind any more."""
        self._waiting.clear()
        self._understand(self._groups.uninstalled())

    def next_deadline(self) -> float | None:
        return min((self._resting.get(namespace, 0.0) for namespace in self._waiting), default=None)

    def heed_time(self, now: float) -> None:
        for namespace in [namespace for namespace, until in self._resting.items() if until <= now]:
            del self._resting[namespace]
        if self._waiting:
            self._take_slice(namespace for namespace in self._waiting if namespace not in self._resting)

    def _take_slice(self, namespaces: Iterable[str]) -> None:
        """One group of each of these in turn, until they had enough pods."""
        turns, done = dict.fromkeys(namespaces), 0
        while turns and done < SLICE:
            del turns[namespace := next(iter(turns))]
            waiting = self._waiting.pop(namespace)
            group, gone = waiting.pop(next(iter(waiting)))
            done += 1 + self._take(group, gone)
            if waiting:
                self._waiting[namespace] = waiting
                if namespace not in self._resting:
                    turns[namespace] = None

    def _take(self, group: PodGroup, gone: bool) -> int:
        members = self._groups.lose(group) if gone else self._groups.see(group)
        self._understand(members)
        if len(members) > SLICE:
            self._resting[group.namespace] = self._clock.steady() + len(members) * _REST
        return len(members)
