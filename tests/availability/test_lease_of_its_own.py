"""The lease has an event loop of its own: nothing that the service does keeps a renewal waiting, and who hangs does not
lead for ever."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace

import pytest

from extender.adapters.own_loop import OwnLoop
from extender.app.admin.leader_election import LeaderElection, LeaseLost
from extender.availability import Pulse
from extender.core.election import NOBODY, Election, Record, Terms
from extender.kube.errors import Occupied

pytestmark = pytest.mark.anyio

SHORT = Terms.of(1)


class Ballot:
    """A record that nobody else writes."""

    def __init__(self) -> None:
        self.record = NOBODY
        self.renewed = threading.Semaphore(0)
        self.threads: set[str] = set()

    async def look(self) -> Record:
        return self.record

    async def write(self, record: Record, *, changes_hands: bool) -> Record:
        if record.version != self.record.version:
            raise Occupied(409, "it is at another")
        self.threads.add(threading.current_thread().name)
        self.record = replace(record, version=str(int(record.version or "0") + 1))
        self.renewed.release()
        return self.record


async def test_it_is_renewed_while_the_loop_that_decides_is_busy_for_longer_than_it_lasts() -> None:
    own, ballot, won, here = OwnLoop("lease"), Ballot(), asyncio.Event(), asyncio.get_running_loop()
    leading = LeaderElection(
        Election("me", "http://me", SHORT), ballot, time.monotonic, won=lambda: here.call_soon_threadsafe(won.set)
    )
    running = asyncio.ensure_future(own.do(leading.run()))
    try:
        await won.wait()
        began = time.monotonic()
        while time.monotonic() - began < SHORT.lease:
            # This loop does not turn meanwhile.
            assert ballot.renewed.acquire(timeout=10)
        assert leading.leads
        assert await own.do(leading.resign())
        await own.do(leading.give_back())
        await running
        assert ballot.record.given_back
        assert ballot.threads == {"lease"}
    finally:
        own.close()


async def test_it_is_not_renewed_for_a_loop_that_hangs() -> None:
    ballot, won, turns = Ballot(), asyncio.Event(), True
    leading = LeaderElection(
        Election("me", "http://me", SHORT), ballot, time.monotonic, won=won.set, turns=lambda: turns
    )
    running = asyncio.ensure_future(leading.run())
    await won.wait()
    turns = False
    with pytest.raises(LeaseLost, match="hangs"):
        await running
    assert not leading.leads


async def test_a_loop_that_does_not_turn_in_time_has_no_pulse() -> None:
    now = 0.0
    pulse = Pulse(asyncio.get_running_loop(), lambda: now, 8.0)
    assert pulse.beats()
    now = 7.9
    assert pulse.beats()
    now = 8.0
    assert not pulse.beats()
    await asyncio.sleep(0)
    assert pulse.beats()
    now = 15.9
    assert pulse.beats()


async def test_what_ends_there_ends_here_and_the_other_way_round() -> None:
    own, cancelled = OwnLoop("own"), threading.Event()

    async def fail() -> None:
        raise LeaseLost("gone")

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    try:
        with pytest.raises(LeaseLost, match="gone"):
            await own.do(fail())
        waiting = asyncio.ensure_future(own.do(wait()))
        await asyncio.sleep(0)
        await own.do(asyncio.sleep(0))
        waiting.cancel()
        assert await asyncio.to_thread(cancelled.wait, 10)
    finally:
        own.close()
