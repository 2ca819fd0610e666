"""SIGTERM to a process that has something to clean up: it does, and then ends by the signal."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

from extender.adapters.kubernetes.appspace.signal_exit import SignalExit

APPLICATION = """
import asyncio, signal, sys
from extender.adapters.kubernetes.appspace.signal_exit import SignalExit

async def one(name):
    with SignalExit():
        try:
            print("in", name, flush=True)
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep({cleaning})
            print("cleaned", name, flush=True)

async def main():
    await asyncio.gather(one("a"), one("b"))
    print("never")

{before}
asyncio.run(main())
"""


def started(*, before: str = "", cleaning: float = 0) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", APPLICATION.format(before=before, cleaning=cleaning)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert {process.stdout.readline(), process.stdout.readline()} == {"in a\n", "in b\n"}
    return process


def test_all_that_is_to_be_cleaned_up_is_and_then_it_ends_as_it_would_have_without() -> None:
    with started() as process:
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=30)
    assert sorted(said.split("\n")) == ["", "cleaned a", "cleaned b"]
    assert process.returncode == -signal.SIGTERM


def test_a_second_signal_does_not_wait() -> None:
    with started(cleaning=60) as process:
        process.send_signal(signal.SIGTERM)
        while process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
        said, _ = process.communicate(timeout=30)
    assert said == ""
    assert process.returncode == -signal.SIGTERM


def test_who_heeds_it_already_is_not_disturbed() -> None:
    with started(before="signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))") as process:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == 7


def test_in_another_thread_it_does_nothing() -> None:
    def enter() -> None:
        with SignalExit():
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
