"""PodGroup events: applied to the members at once, or later after a large change.

One step updates all members of a group: a gang with the new quorum on only some members would be wrong. After a large
group, further events of its namespace wait. The last event of each group replaces earlier ones, as if the watch were
late. Each tick of the `Scheduler` applies one slice of waiting events, in turn by namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from extender.app.contracts.ports import Clock
from extender.core.cluster import Pod
from extender.core.gangs.state.pod_groups import GroupName, PodGroup, PodGroups

_REST = 0.002
"""Seconds of waiting for each pod of a large change: about thirty times what its update takes."""

_News = tuple[PodGroup, bool]
"""The last event of a group: the group, and whether it was deleted."""


class PodGroupEvents:
    """`understand` is called with pods, as the API server has them, whose PodGroup changed.

    `most`: how many pods one step updates, unless a single group has more.
    """

    def __init__(self, groups: PodGroups, clock: Clock, understand: Callable[[Iterable[Pod]], None], most: int) -> None:
        self._groups = groups
        self._clock = clock
        self._understand = understand
        self._most = most
        self._resting: dict[str, float] = {}
        """By namespace: until when its events wait."""
        self._waiting: dict[str, dict[GroupName, _News]] = {}
        """Waiting events by namespace; the namespace whose turn is next comes first."""

    def hear(self, group: PodGroup, *, gone: bool) -> None:
        """The watch reports the group as it is now, or as it was when it was deleted."""
        if group.namespace in self._waiting or self._resting.get(group.namespace, 0.0) > self._clock.steady():
            self._waiting.setdefault(group.namespace, {})[group.key] = group, gone
        else:
            self._take(group, gone)

    def replace(self, groups: Iterable[PodGroup]) -> Iterator[None]:
        """The cluster has these groups and no others, once the slices are walked through."""
        listed = {group.key: group for group in groups}
        self._waiting.clear()
        if not self._groups.installed:
            self._understand(self._groups.replace(listed.values()))
            return
        known = {group.key: group for group in self._groups.known()}
        for name, group in sorted((known | listed).items()):
            self._waiting.setdefault(group.namespace, {})[name] = group, name not in listed
        # An event that comes between two slices is newer than the list, and replaces its entry.
        while self._waiting:
            self._take_slice(self._waiting)
            yield

    def uninstalled(self) -> None:
        """The API server does not serve PodGroups any more."""
        self._waiting.clear()
        self._understand(self._groups.uninstalled())

    def next_deadline(self) -> float | None:
        return min((self._resting.get(namespace, 0.0) for namespace in self._waiting), default=None)

    def on_time(self, now: float) -> None:
        for namespace in [namespace for namespace, until in self._resting.items() if until <= now]:
            del self._resting[namespace]
        if self._waiting:
            self._take_slice(namespace for namespace in self._waiting if namespace not in self._resting)

    def _take_slice(self, namespaces: Iterable[str]) -> None:
        """Applies one waiting event of each namespace in turn, until a slice of pods is updated."""
        turns, done = dict.fromkeys(namespaces), 0
        while turns and done < self._most:
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
        if len(members) > self._most:
            self._resting[group.namespace] = self._clock.steady() + len(members) * _REST
        return len(members)
