"""Forked: runs work that destroys its input in a forked copy of this process.

The kernel makes the copy in milliseconds. It shares memory pages with its parent until one of the two writes to them.
So the cost depends on what the work reads, not on the state's size. The copy sends its answer through a pipe and ends:
it runs no handler, flushes nothing, and writes to no connection. It closes all other files and sockets. Otherwise a
connection closed by the parent would stay open for its caller, and a dead parent's port would stay taken. It dies with
its parent. One copy runs at a time, namespaces take turns, and a copy that takes too long is killed. A copy may fork
copies, one after the other, which are killed and reaped with it: process 1 of a container inherits all orphans.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import pickle
import resource
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from extender.adapters.memory import Memory, unlimited
from extender.app.contracts.errors import ManagementError
from extender.app.fair_semaphore import FairSemaphore
from extender.kube.errors import Unavailable

T = TypeVar("T")
MOST_WAITING = 8
"""Calls of one namespace."""
_MOST_MORE = 256 * 2**20
"""Bytes that the work may allocate beyond the copied memory."""
_LEAST_MORE = 32 * 2**20
"""Bytes; with less the work could do nothing useful."""
_MOST_FILES = 2**20
"""Numbers of open files are below this, as kernels are usually configured."""
_PR_SET_PDEATHSIG = 1
_prctl = getattr(ctypes.CDLL(None), "prctl", None)
"""Only Linux has `prctl`. It is looked up here because a copy loads no libraries."""


class Forked:
    """Implements `simulate.Copied`. `within`: seconds for the work, or a third in a copy of a copy.

    `at_once`: block the event loop until the copy has answered, for clocks that are not the machine's. `memory`: the
    memory in use; a copy may take half of the rest, because a memory limit counts it as the parent's."""

    def __init__(
        self, within: float = 5.0, *, at_once: bool = False, memory: Callable[[], Memory | None] = unlimited
    ) -> None:
        self._within = within
        self._at_once = at_once
        self._memory = memory
        self._one = FairSemaphore(at_once=1)
        self._waiting: Counter[str] = Counter()

    async def in_a_copy(self, work: Callable[[], T], namespace: str = "") -> T:
        """Returns the work's result. Raises Unavailable, and the work's ManagementError."""
        if self._waiting[namespace] >= MOST_WAITING:
            raise Unavailable("too many simulations are waiting: ask again in a moment", retry_after=1.0)
        self._waiting[namespace] += 1
        try:
            async with self._one.held(namespace):
                more = self._room()
                said = await self._ask(work, more)
        finally:
            self._waiting -= Counter((namespace,))
        answer: T = _answer(said, self._within, more)
        return answer

    def within_a_copy(self, work: Callable[[], T]) -> T:
        """The same for work that itself runs in a copy; blocks until the new copy has answered."""
        within, more = self._within / 3, self._room()
        copy, reading = _fork(work, within, more, of_a_copy=True)
        said = _all_of(reading)
        os.waitpid(copy, 0)
        answer: T = _answer(said, within, more)
        return answer

    def _room(self) -> int:
        """Returns the bytes that a copy may take. Raises Unavailable if that is too little."""
        memory = self._memory()
        if memory is None:
            return _MOST_MORE
        if memory.left // 2 < _LEAST_MORE:
            raise Unavailable(
                f"this process cannot be forked: {memory.left} of its {memory.limit} bytes of memory are free",
                retry_after=10.0,
            )
        return min(_MOST_MORE, memory.left // 2)

    async def _ask(self, work: Callable[[], Any], more: int) -> Any:
        copy, reading = _fork(work, 2 * self._within, more)
        if self._at_once:
            # The copy's own alarm ends it.
            said = _all_of(reading)
            _end(copy)
            return said
        heard = asyncio.get_running_loop().run_in_executor(None, _all_of, reading)
        try:
            return await asyncio.wait_for(asyncio.shield(heard), self._within)
        except TimeoutError:
            return None
        finally:
            _end(copy)
            await heard


def _fork(work: Callable[[], Any], alarm: float, more: int, *, of_a_copy: bool = False) -> tuple[int, int]:
    """Returns the copy's process id, and the descriptor of its answer. Raises Unavailable.

    `alarm`: seconds until it ends if no parent kills it; `more`: bytes for it. It leads a process group for its copies.
    """
    reading, writing = os.pipe()
    parent = os.getpid()
    try:
        copy = os.fork()
    except OSError as error:
        os.close(reading)
        os.close(writing)
        raise Unavailable(f"this process cannot be forked: {error}") from error
    if copy == 0:
        _work(work, writing, alarm, more, parent)
    if not of_a_copy:
        # The copy may have ended before this call, but it has not been reaped: its process id is still valid.
        os.setpgid(copy, copy)
    os.close(writing)
    return copy, reading


def _end(copy: int) -> None:
    """Kills and reaps the copy, and reaps its copies that are this process's children by then."""
    os.killpg(copy, signal.SIGKILL)
    # The killed process ends immediately, so this call does not block for long.
    os.waitpid(copy, 0)
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-copy, 0)


def _answer(said: Any, within: float, more: int) -> Any:
    """Returns the answer of the work. Raises its ManagementError, RuntimeError, or Unavailable."""
    match said:
        case ("answer", answer):
            return answer
        case ("refusal", kind, field, value, detail):
            raise kind(field, value, detail)
        case ("defect", defect):
            raise RuntimeError(f"in a fork of the process: {defect}")
        case _:
            limits = f"{within:g} s and {more >> 20} MiB"
            raise Unavailable(f"the simulation did not finish within {limits}: ask for less")


def _work(work: Callable[[], Any], writing: int, alarm: float, more: int, parent: int) -> None:
    """Runs in the copy: does the work, sends its outcome, and ends the process."""
    try:
        _die_with(parent)
        os.closerange(3, writing)
        os.closerange(writing + 1, _MOST_FILES)
        # A terminal signals the copy too. With the parent's wakeup descriptor it would wake the parent a second time.
        signal.set_wakeup_fd(-1)
        for told in (signal.SIGINT, signal.SIGTERM):
            signal.signal(told, signal.SIG_DFL)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, alarm)
        # A collection would write to, and so copy, every page.
        gc.disable()
        _die_first()
        _limit_memory(more)
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(pickle.dumps(_outcome(work)))
    finally:
        os._exit(0)


def _outcome(work: Callable[[], Any]) -> tuple[Any, ...]:
    try:
        return "answer", work()
    except ManagementError as error:
        return "refusal", type(error), error.field, error.value, error.detail
    except MemoryError:
        return ("too much",)
    except Exception as error:
        return "defect", repr(error)


def _die_with(parent: int) -> None:
    """Makes the kernel kill this copy when its parent ends."""
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        # The parent ended before the call of `prctl`.
        os._exit(0)


def _die_first() -> None:
    """Makes the kernel's out-of-memory killer choose this copy before its parent."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as said:
        said.write("1000")


def _limit_memory(more: int) -> None:
    """Limits the copy's address space: its memory counts as the parent's. A lower limit stays."""
    if (now := _address_space()) is None:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = now + more if hard == resource.RLIM_INFINITY else min(hard, now + more)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _address_space() -> int | None:
    """Returns the bytes that this process has mapped; None if the kernel does not say."""
    try:
        with open("/proc/self/statm", "rb") as said:
            return int(said.read().split()[0]) * resource.getpagesize()
    except OSError:
        return None


def _all_of(reading: int) -> Any:
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    try:
        return pickle.loads(said)
    except (EOFError, pickle.UnpicklingError):
        return None
