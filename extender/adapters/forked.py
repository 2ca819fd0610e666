"""Forked: work that ruins what it works on is done in a copy of this process, which the kernel makes in milliseconds.

The copy shares every page with us until one of the two writes to it, so that a state of any size costs what the work
looks at. It has its answer sent through a pipe and ends without a word to anybody else: no handler runs, nothing is
flushed, no connection is written to. It closes all files and sockets but that pipe, else a connection that we close
would stay open for its caller, and our port taken after we died. It dies with the process that made it. One at a time,
and namespaces that ask take turns; what takes too long is killed. A copy may have copies of its own, one after the
other, which are killed and reaped with it: as process 1 of a container we are the parent of all that lose theirs. Must
not know what the work is.
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
from extender.app.contracts.api import ManagementError
from extender.app.fair_semaphore import FairSemaphore
from extender.kube.errors import Unavailable

T = TypeVar("T")
MOST_WAITING = 8
"""Of one namespace."""
_MOST_MORE = 256 * 2**20
"""Bytes that the work may take beside what there is."""
_LEAST_MORE = 32 * 2**20
"""With less it could do nothing of use."""
_MOST_FILES = 2**20
"""Numbers of open files are below that, as kernels are set up."""
_PR_SET_PDEATHSIG = 1
_prctl = getattr(ctypes.CDLL(None), "prctl", None)
"""Linux alone has it. Looked up here: a copy loads no libraries."""


class Forked:
    """Implements `simulate.Copied`. `within`: seconds that the work may take, in a copy of a copy a third of it.
    `at_once`: nobody else has a turn meanwhile, for time is not the machine's, and no thread is waited for. `memory`:
    how much of it is in use; a copy may take half of what is left, for what it takes is ours where memory is limited.
    """

    def __init__(
        self, within: float = 5.0, *, at_once: bool = False, memory: Callable[[], Memory | None] = unlimited
    ) -> None:
        self._within = within
        self._at_once = at_once
        self._memory = memory
        self._one = FairSemaphore(at_once=1)
        self._waiting: Counter[str] = Counter()

    async def in_a_copy(self, work: Callable[[], T], namespace: str = "") -> T:
        """What the work answers, or raises of ManagementError. Raises Unavailable."""
        if self._waiting[namespace] >= MOST_WAITING:
            raise Unavailable("too many ask what would be: ask again in a moment", retry_after=1.0)
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
        """The same for work that is itself in a copy: this one is waited for at once."""
        within, more = self._within / 3, self._room()
        copy, reading = _fork(work, within, more, of_a_copy=True)
        said = _all_of(reading)
        os.waitpid(copy, 0)
        answer: T = _answer(said, within, more)
        return answer

    def _room(self) -> int:
        """Bytes that a copy may take. Raises Unavailable where that is too little to begin with."""
        memory = self._memory()
        if memory is None:
            return _MOST_MORE
        if memory.left // 2 < _LEAST_MORE:
            raise Unavailable(
                f"no copy is made of this process: {memory.left} of its {memory.limit} bytes of memory are left",
                retry_after=10.0,
            )
        return min(_MOST_MORE, memory.left // 2)

    async def _ask(self, work: Callable[[], Any], more: int) -> Any:
        copy, reading = _fork(work, 2 * self._within, more)
        if self._at_once:
            # Its own alarm ends it.
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
    """The copy, and where to read what it says. `alarm`: seconds after which it ends, should no process be left to kill
    it; `more`: bytes that it may take. A copy leads a group of processes: its own copies are in it. Raises
    Unavailable."""
    reading, writing = os.pipe()
    parent = os.getpid()
    try:
        copy = os.fork()
    except OSError as error:
        os.close(reading)
        os.close(writing)
        raise Unavailable(f"no copy can be made of this process: {error}") from error
    if copy == 0:
        _work(work, writing, alarm, more, parent)
    if not of_a_copy:
        # By the time that this returns the copy may have ended, but it was not waited for: it is there.
        os.setpgid(copy, copy)
    os.close(writing)
    return copy, reading


def _end(copy: int) -> None:
    """It is dead and reaped, and so are its own copies, where they are our children by now."""
    os.killpg(copy, signal.SIGKILL)
    # They are dead: there is nothing to wait for.
    os.waitpid(copy, 0)
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-copy, 0)


def _answer(said: Any, within: float, more: int) -> Any:
    """Raises ManagementError as the work, RuntimeError, Unavailable."""
    match said:
        case ("answer", answer):
            return answer
        case ("refusal", kind, field, value, detail):
            raise kind(field, value, detail)
        case ("defect", defect):
            raise RuntimeError(f"in a copy of the process: {defect}")
        case _:
            limits = f"{within:g} s and {more >> 20} MiB"
            raise Unavailable(f"it could not be worked out within {limits}: ask for less")


def _work(work: Callable[[], Any], writing: int, alarm: float, more: int, parent: int) -> None:
    """In the copy: the work is done and told, and the copy is no more."""
    try:
        _die_with(parent)
        os.closerange(3, writing)
        os.closerange(writing + 1, _MOST_FILES)
        # A terminal tells the whole group of processes: what it tells the copy, we would hear as a second time.
        signal.set_wakeup_fd(-1)
        for told in (signal.SIGINT, signal.SIGTERM):
            signal.signal(told, signal.SIG_DFL)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, alarm)
        # A round of the collector would look at, and so copy, every page that there is.
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
    """The kernel kills this copy when the process that made it ends."""
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        # It has ended before that was said.
        os._exit(0)


def _die_first() -> None:
    """Where the kernel has to end somebody for want of memory, it ends this copy, and not whom it is a copy of."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as said:
        said.write("1000")


def _limit_memory(more: int) -> None:
    """What a copy takes counts as ours where memory is limited. A limit that there is already stays."""
    if (now := _address_space()) is None:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = now + more if hard == resource.RLIM_INFINITY else min(hard, now + more)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _address_space() -> int | None:
    """Bytes that this process has mapped; None where the kernel does not say."""
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
