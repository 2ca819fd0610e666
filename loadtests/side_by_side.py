"""Side by side: simulations that have nothing to do with each other, in so many processes."""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

Plan = TypeVar("Plan")
Result = TypeVar("Result")


def lives(live: Callable[[Plan], Result], plans: Sequence[Plan], jobs: int) -> Generator[Result, None, None]:
    """Their results, as they come. Close it where they are not wanted to the end."""
    if jobs == 1:
        yield from map(live, plans)
        return
    # Started anew and not forked: nothing that this process has met may change what a life is.
    with multiprocessing.get_context("spawn").Pool(jobs, _collect_rarely) as pool:
        yield from pool.imap_unordered(live, plans)


def _collect_rarely() -> None:
    """A simulation makes few cycles: looking for them at Python's own thresholds took a fifth of its time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 50, 50)
