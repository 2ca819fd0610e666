"""Work in a copy of the process: nothing of it is seen here but its answer, and none outlives its time."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from extender.adapters.forked import MOST_WAITING, Forked
from extender.adapters.memory import Memory
from extender.app.contracts.errors import NotFound
from extender.kube.errors import Unavailable

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("at_once", [False, True])
async def test_the_answer_comes_and_what_the_work_has_done_does_not(at_once: bool) -> None:
    state = {"a": [1, 2, 3]}

    def work() -> int:
        state["a"].append(4)
        return sum(state["a"])

    assert await Forked(at_once=at_once).in_a_copy(work) == 10
    assert state == {"a": [1, 2, 3]}


async def test_an_answer_larger_than_a_pipe_comes_whole() -> None:
    assert len(await Forked().in_a_copy(lambda: "x" * 2_000_000)) == 2_000_000


async def test_a_refusal_is_raised_here() -> None:
    def work() -> None:
        raise NotFound("node", "n9", "there is no node n9")

    with pytest.raises(NotFound, match="there is no node n9") as refused:
        await Forked().in_a_copy(work)
    assert (refused.value.field, refused.value.value) == ("node", "n9")


async def test_a_defect_is_one_here() -> None:
    with pytest.raises(RuntimeError, match="division by zero"):
        await Forked().in_a_copy(lambda: 1 / 0)


async def test_a_copy_that_dies_is_told_of() -> None:
    with pytest.raises(Unavailable, match="simulation did not finish"):
        await Forked().in_a_copy(lambda: os._exit(1))


async def test_what_takes_too_long_is_killed_and_the_next_is_answered(tmp_path: Path) -> None:
    forked = Forked(within=0.2)
    said = tmp_path / "copy"

    def work() -> None:
        said.write_text(str(os.getpid()))
        time.sleep(60)

    with pytest.raises(Unavailable, match=r"within 0\.2 s"):
        await forked.in_a_copy(work)
    with pytest.raises(ProcessLookupError):
        os.kill(int(said.read_text()), 0)
    assert await forked.in_a_copy(lambda: 1) == 1


@pytest.mark.parametrize("at_once", [False, True])
async def test_a_copy_tries_several_things_each_in_a_copy_of_its_own(at_once: bool) -> None:
    forked, state = Forked(at_once=at_once), [1, 2, 3]

    def more(number: int) -> int:
        state.append(number)
        return sum(state)

    def work() -> list[int]:
        # So that a copy of it has more memory mapped than this had at its beginning.
        thought = b"x" * 2**26
        assert thought
        tried = [forked.within_a_copy(lambda number=number: more(number)) for number in (4, 5)]  # type: ignore[misc]
        return [*tried, sum(state)]

    assert await forked.in_a_copy(work) == [10, 11, 6]


async def test_one_that_takes_too_long_in_a_copy_is_told_of_there_and_leaves_time_for_others() -> None:
    forked = Forked(within=0.6)

    def work() -> str:
        with pytest.raises(Unavailable, match=r"within 0\.2 s"):
            forked.within_a_copy(lambda: time.sleep(60))
        return "another"

    assert await forked.in_a_copy(work) == "another"


async def test_what_takes_too_much_memory_is_told_of() -> None:
    with pytest.raises(Unavailable, match="256 MiB"):
        await Forked().in_a_copy(lambda: len(b"x" * 2**30))


async def test_a_copy_takes_half_of_the_memory_that_is_left_at_most() -> None:
    tight = Forked(memory=lambda: Memory(used=300 * 2**20, limit=400 * 2**20))
    with pytest.raises(Unavailable, match="50 MiB"):
        await tight.in_a_copy(lambda: len(b"x" * 2**27))
    assert await tight.in_a_copy(lambda: len(b"x" * 2**20)) == 2**20


async def test_with_too_little_memory_no_copy_is_made_and_it_is_said_when_to_ask_again() -> None:
    with pytest.raises(Unavailable, match="of its 419430400 bytes of memory are free") as refused:
        await Forked(memory=lambda: Memory(used=350 * 2**20, limit=400 * 2**20)).in_a_copy(lambda: 1)
    assert refused.value.retry_after == 10.0


async def test_where_the_kernel_has_to_end_somebody_it_ends_a_copy_first() -> None:
    def work() -> str:
        return Path("/proc/self/oom_score_adj").read_text().strip()

    assert await Forked().in_a_copy(work) == "1000"
    assert work() != "1000"


async def test_of_too_many_at_once_the_last_are_turned_away() -> None:
    forked = Forked()
    asked = [asyncio.create_task(forked.in_a_copy(lambda: 1)) for _ in range(MOST_WAITING + 2)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert answers[:MOST_WAITING] == [1] * MOST_WAITING
    assert all(isinstance(each, Unavailable) for each in answers[MOST_WAITING:])


async def test_a_namespace_that_asks_without_end_keeps_no_place_and_no_turn_from_another() -> None:
    forked, answered, begun = Forked(), list[str](), asyncio.Event()

    async def ask(namespace: str) -> None:
        await forked.in_a_copy(lambda: None, namespace)
        answered.append(namespace)
        begun.set()

    async def without_end() -> None:
        while True:
            with suppress(Unavailable):
                await ask("a")
            await asyncio.sleep(0)

    greedy = [asyncio.create_task(without_end()) for _ in range(3 * MOST_WAITING)]
    await begun.wait()
    before = len(answered)
    await ask("b")
    assert len(answered) - before <= 3
    for task in greedy:
        task.cancel()
    await asyncio.gather(*greedy, return_exceptions=True)


async def test_what_a_terminal_tells_the_copy_too_is_heard_here_once() -> None:
    heard, told, loop = list[int](), asyncio.Event(), asyncio.get_running_loop()

    def hear() -> None:
        heard.append(signal.SIGINT)
        told.set()

    def work() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)

    loop.add_signal_handler(signal.SIGINT, hear)
    try:
        with pytest.raises(Unavailable):
            await Forked().in_a_copy(work)
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.wait_for(told.wait(), 5)
    finally:
        loop.remove_signal_handler(signal.SIGINT)
    assert heard == [signal.SIGINT]


@pytest.mark.parametrize("at_once", [False, True])
async def test_a_copy_holds_no_socket_and_no_file_of_ours(at_once: bool) -> None:
    def held() -> list[str]:
        paths = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd") if int(number) > 2]
        return [os.readlink(path) for path in paths if os.path.lexists(path)]

    with socket.create_server(("127.0.0.1", 0)):
        assert any(each.startswith("socket:") for each in held())
        [pipe] = await Forked(at_once=at_once).in_a_copy(held)
        assert pipe.startswith("pipe:")


async def test_a_connection_that_is_closed_while_a_copy_works_is_closed_for_its_caller() -> None:
    forked = Forked()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as caller:
        ours, _ = server.accept()
        works = asyncio.create_task(forked.in_a_copy(lambda: time.sleep(2)))
        # The copy is made before anything else has its turn.
        await asyncio.sleep(0)
        ours.close()
        caller.settimeout(1)
        assert await asyncio.to_thread(caller.recv, 1) == b""
        works.cancel()
        await asyncio.gather(works, return_exceptions=True)


ORPHANS = """
import asyncio, os, sys, time
from extender.adapters.forked import Forked

def work():
    print(os.getpid(), flush=True)
    forked.within_a_copy(lambda: (print(os.getpid(), flush=True), time.sleep(60)))

forked = Forked(30)
asyncio.run(forked.in_a_copy(work))
"""


def test_copies_and_their_copies_die_with_the_process_that_made_them() -> None:
    with subprocess.Popen([sys.executable, "-c", ORPHANS], stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        assert all(int(service.stdout.readline()) for _ in range(2))
        service.kill()
        # They have it open too: it ends when they have.
        assert service.communicate(timeout=10)[0] == ""


AS_PROCESS_1 = """
import asyncio, ctypes, os, time
from extender.adapters.forked import Forked
from extender.kube.errors import Unavailable

ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: the parent of all below that lose theirs

async def main():
    for at_once in (False, True):
        forked = Forked(0.3, at_once=at_once)
        try:
            await forked.in_a_copy(lambda: [forked.within_a_copy(lambda: time.sleep(0.05)) for _ in range(100)])
        except Unavailable:
            print(open(f"/proc/self/task/{os.getpid()}/children").read().split())

asyncio.run(main())
"""


def test_as_process_1_it_reaps_copies_of_a_copy_that_took_too_long() -> None:
    said = subprocess.run([sys.executable, "-c", AS_PROCESS_1], capture_output=True, text=True, check=True, timeout=60)
    assert said.stdout.splitlines() == ["[]", "[]"]
