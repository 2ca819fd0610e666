"""The slow twin of `Requeue.settle_if_changed`: a full pass where that makes none must find nothing."""

from __future__ import annotations

from extender.app.cycle.requeue import Requeue

SETTLE_IF_CHANGED = Requeue.settle_if_changed


def settle_and_compare(requeue: Requeue) -> None:
    """As `settle_if_changed`. Raises AssertionError if a pass that it leaves out has effects or changes."""
    if requeue._may_find_something():
        SETTLE_IF_CHANGED(requeue)
        return
    before, due = _state(requeue), requeue.due
    requeue.settle()
    assert _state(requeue) == before
    requeue.due = due


def _state(requeue: Requeue) -> tuple[object, ...]:
    gangs = requeue._cache.gangs
    phases = {key: gang.phase for key, gang in gangs.by_key.items()}
    effects = len(requeue._effects), len(gangs.effects)
    waiting, asleep = gangs.waiting, set(requeue._unschedulable)
    left = requeue.more_to_do, requeue.waking.has_work, requeue._was_stale, set(waiting.to_requeue)
    return requeue._counts(), effects, left, phases, asleep, waiting.queue.saved.gang, waiting.queue.version
