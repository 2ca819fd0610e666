"""Measures what a large cluster costs the service: memory, time until ready, CPU time of an event.

    python -m loadtests.goals.at_scale                                    # 5,000 nodes, 50,000 pods; three minutes
    python -m loadtests.goals.at_scale --nodes 500 --pods 5000 --rounds 2

The service is a separate process. Its embedded API server is another process that does nothing else. Each round starts
the service again; it is ready when its /readyz answers 200. Memory is the resident memory after it has settled, its
proportional share where pages are shared, and the resident memory after pods came and went. SIGTERM ends each round.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from lab.compare.reporting.figures import Sample, estimate
from loadtests.goals.measuring.crowded import Crowded
from loadtests.goals.measuring.measured import Measured
from loadtests.shared.progress import say

READY = "time from start to ready"
RESIDENT, PROPORTIONAL = "resident memory of the service", "proportional memory of the service"
AFTERWARDS = "resident memory after pods came and went"
EVENT = "pod event, whole service"
START = "CPU time from start to ready"
ROWS = (READY, START, RESIDENT, PROPORTIONAL, EVENT, AFTERWARDS)

NODES, PODS, ROUNDS, CHANGED = 5000, 50_000, 6, 1000
_PATIENCE, SETTLES = 120.0, 3.0
_TICK = os.sysconf("SC_CLK_TCK")


def measures(nodes: int = NODES, pods: int = PODS, rounds: int = ROUNDS) -> Iterator[Measured]:
    """Yields seconds, MiB, and microseconds of CPU for an event."""
    found: dict[str, list[float]] = {row: [] for row in ROWS}
    with tempfile.TemporaryDirectory() as folder:
        say(f"making an API server with {nodes} nodes and {pods} pods")
        with Crowded.start(Path(folder), nodes=nodes, pods=pods) as crowded:
            for number in range(rounds):
                for row, value in _one_life(crowded, Path(folder)).items():
                    found[row].append(value)
                latest = ", ".join(f"{row} {each[-1]:.2f}" for row, each in found.items())
                say(f"round {number + 1} of {rounds}: {latest}")
    for row, values in found.items():
        sample: Sample = {number: [value] for number, value in enumerate(values)}
        if (known := estimate(sample)) is not None:
            yield Measured(row, known.value, known.low, known.high, known.count)


def _one_life(crowded: Crowded, folder: Path) -> dict[str, float]:
    log = folder / "log"
    with serving(crowded.kubeconfig, log) as (service, port):
        began = time.monotonic()
        wait_until_ready(service, port, log)
        found = {READY: time.monotonic() - began, START: _cpu(service.pid)}
        time.sleep(SETTLES)
        found[RESIDENT], found[PROPORTIONAL] = resident_and_proportional(service.pid)
        before = _cpu(service.pid)
        events = crowded.change(CHANGED)
        time.sleep(SETTLES)
        found[EVENT] = (_cpu(service.pid) - before) / events * 1e6
        found[AFTERWARDS], _ = resident_and_proportional(service.pid)
        return found


@contextmanager
def serving(kubeconfig: Path, log: Path, within: Sequence[str] = ()) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Yields the service and its port; ends it by SIGTERM. `within`: a command to prepend."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    serve = [sys.executable, "-m", "extender", "serve", "--kubeconfig", str(kubeconfig), "--port", str(port)]
    with log.open("wb") as written, subprocess.Popen([*within, *serve], stdout=written, stderr=written) as service:
        try:
            yield service, port
        finally:
            service.terminate()


def wait_until_ready(service: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Returns when the service is ready. Raises RuntimeError with its log if it is late."""
    end = time.monotonic() + _PATIENCE
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=10) as client:
        while True:
            try:
                if client.get("/readyz").status_code == 200:
                    return
            except httpx.TransportError:
                pass
            if service.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the service did not become ready: {log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.02)


def _cpu(pid: int) -> float:
    """Returns the CPU seconds that the process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def resident_and_proportional(pid: int) -> tuple[float, float]:
    """Returns MiB resident, and the process's proportional share."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.endswith(" kB")}
    return kilobytes["Rss"] / 1024, kilobytes["Pss"] / 1024


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtests.goals.at_scale", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--nodes", type=int, default=NODES, help=f"of the cluster (default: {NODES})")
    parser.add_argument("--pods", type=int, default=PODS, help=f"that are bound (default: {PODS})")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"starts of the service (default: {ROUNDS})")
    wanted = parser.parse_args(given)
    for each in measures(wanted.nodes, wanted.pods, wanted.rounds):
        sys.stdout.write(f"{each.row:<42}{each.now:10.2f}   ({each.low:.2f} to {each.high:.2f})\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
