"""Requeue: finds the waiting pods and gangs that may fit after a change, plans and wakes them.

A pod is woken at most once for each change. Nothing is planned while the cache is stale, and nothing is settled while a
list is being taken in.
"""

from __future__ import annotations

from collections.abc import Iterable

from extender.app.cache.cache import Cache
from extender.app.cache.staleness import LOOKS_EVERY
from extender.app.cache.unschedulable_pods import UnschedulablePods
from extender.app.contracts.effects import Effect
from extender.app.cycle.bind import Binds
from extender.app.wake_search import WakeSearch
from extender.core.gangs.state.gang import WakePod
from extender.kube.names import NodeName, PodUid

_WITHDRAWN = 500
"""Steps that it costs to check whether final refusals are still true."""


class Requeue:
    """Plans gangs and wakes pods. Adds what is to be done to `effects`."""

    def __init__(self, cache: Cache, binds: Binds, unschedulable: UnschedulablePods, effects: list[Effect]) -> None:
        self._cache = cache
        self._binds = binds
        self._unschedulable = unschedulable
        self._effects = effects
        self.more_to_do = False
        """Whether a slice of work ended before all was settled."""
        self.due: float | None = None
        """When time makes the next pass necessary, in steady seconds; None: now, or unknown."""
        self._seen: tuple[int, ...] = ()
        """What the last pass has taken in, as `_counts` has it; empty: that pass was not made to its end."""
        self._was_stale = False
        self._gained: dict[NodeName, None] = {}
        """Nodes that gained room, and that unschedulable pods were not compared with yet."""
        policies = cache.policies
        self.waking = WakeSearch(unschedulable, policies.filter_score, cache.nodes.keys(), policies.event_hooks.order)

    def governed_anew(self, namespace: str) -> None:
        """The policies of the namespace have changed."""
        self.waking.requeue(namespace, all_kinds=True)

    def governed_otherwise(self, pods: Iterable[PodUid]) -> None:
        """Other alternatives match these pods now; no policy has changed."""
        self.waking.concerns(pods)

    def settle_if_changed(self) -> None:
        """As `settle`, but it makes no pass if that would find nothing: no fact, change or moment is due."""
        if self._may_find_something():
            self.settle()

    def _may_find_something(self) -> bool:
        cache = self._cache
        if self.due is None or self._was_stale or self._seen != self._counts():
            return True
        if self.waking.has_work or cache.policies.filter_score.in_doubt or self.due <= cache.clock.steady():
            return True
        return self._binds.waiting_binds.for_policies or cache.around.staying.is_due(cache.clock.now())

    def _counts(self) -> tuple[int, ...]:
        """Counts of changes of the ledger, of facts, and of pods that became resident or ceased to be."""
        cache, staying = self._cache, self._cache.around.staying
        return cache.ledger.changes.count, cache.policies.event_hooks.count, staying.grown, staying.shrunk

    def settle(self) -> None:
        """A pass: takes in all changes, plans and wakes."""
        cache = self._cache
        self.due = None
        if not cache.whole:
            return
        # What the pass itself changes is for the next one.
        seen, self._seen = self._counts(), ()
        self._binds.on_change()
        cache.policies.reserve_permit.on_released()
        cache.policies.event_hooks.on_held()
        cache.around.daemons.settle()
        cache.around.staying.on_time(cache.clock.now())
        if cache.staleness.is_stale():
            self._was_stale, self.more_to_do = True, False
        else:
            self._settle(cache.clock.steady())
        self._seen = seen

    def _settle(self, now: float) -> None:
        cache, policies, changes = self._cache, self._cache.policies.requeue_hooks, self._cache.ledger.changes
        if self._was_stale:
            self._was_stale = False
            for node in cache.nodes:
                cache.ledger.capacity.reconsider(node)
        policies.begin_slice(now)
        while (gains := changes.drain_gains()) or policies.has_work(now):
            # First, because kube-scheduler counts those pods there already.
            self._binds.on_nodes(gains)
            policies.settle(gains, now)
            self._gained |= dict.fromkeys(gains)
            if not changes.has_gains:
                # Room that was given up on the way is reserved again by now.
                gained, self._gained = policies.left_for_others(self._gained), {}
                self.waking.gained(gained)
            if policies.slice_is_over():
                break
        more_to_wake = self._wake()
        self.more_to_do = policies.slice_is_over() or cache.around.daemons.has_work or more_to_wake

    def _wake(self) -> bool:
        """Wakes pods that lacked room or that policies refused, and may fit now; False: none are left."""
        waking, policies = self.waking, self._cache.policies.filter_score
        for namespace in self._cache.policies.event_hooks.take_requeue_hints():
            waking.requeue(namespace, all_kinds=False)
        if has_work := waking.has_work:
            self._effects += map(WakePod, waking.go_on())
        in_doubt = policies.in_doubt
        in_slices = in_doubt and not waking.work.is_over
        if in_slices:
            waking.work.take(_WITHDRAWN)
        # These pods may fit nowhere, but they were refused for good, and that is not true any more.
        for pod in (withdrawn := policies.take_withdrawn(in_slices=in_slices)):
            if pod.uid in self._unschedulable:
                self._unschedulable.drop(pod.uid)
                self._effects.append(WakePod(pod))
        return bool((has_work or withdrawn) and waking.has_work) or (in_doubt and policies.in_doubt)

    def next_deadline(self, due: float | None) -> float | None:
        """When to settle next, if other parts have work at `due`."""
        if not self._was_stale:
            return due
        # What is not planned now stays due, also if nothing reports that the cache is fresh again.
        now = self._cache.clock.steady()
        return now + LOOKS_EVERY if due is None else max(due, now + 1.0)
