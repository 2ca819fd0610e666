"""Side by side: runs independent simulations in several processes."""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

Plan = TypeVar("Plan")
Result = TypeVar("Result")


def lives(live: Callable[[Plan], Result], plans: Sequence[Plan], jobs: int) -> Generator[Result, None, None]:
    """Yields results as they come. Close the generator to stop before the end."""
    if jobs == 1:
        yield from map(live, plans)
        return
    # Spawned and not forked: the state of this process must not change a life.
    with multiprocessing.get_context("spawn").Pool(jobs, _collect_rarely) as pool:
        yield from pool.imap_unordered(live, plans)


def _collect_rarely() -> None:
    """Collects rarely: simulations make few cycles, and the default took a fifth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 50, 50)
