"""`python -m loadtests.client`: ten minutes of any requests to an embedded cluster, and answers."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
from collections.abc import Sequence

from kubesim.virtual_time import VirtualTimeLoop
from loadtests.client.run import Result, in_process


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtests.client", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (default: 10)")
    parser.add_argument("--requests", type=int, help="or how many requests, however long they take")
    parser.add_argument("--seed", type=int, help="draws everything (default: a new one)")
    asked = parser.parse_args(given)
    seed = secrets.randbelow(1_000_000) if asked.seed is None else asked.seed
    seconds = None if asked.requests else asked.minutes * 60
    sys.stdout.write(f"seed {seed}\n")
    sys.stdout.flush()
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        result = runner.run(in_process(seed, requests=asked.requests, seconds=seconds))
    sys.stdout.write(report(result))
    return 1 if result.findings else 0


def report(result: Result) -> str:
    statuses = ", ".join(f"{status}: {count}" for status, count in sorted(result.statuses.items()))
    lines = [
        f"seed {result.seed}: {result.requests} requests and {result.watches} watches, in {result.hours:.1f} hours of"
        " the cluster's time",
        f"answers  {statuses}",
        f"at most  {result.most_bytes >> 20} MiB remembered, {result.most_tasks} tasks, {result.resident} MiB resident;"
        f" {result.objects} objects at the end",
        *(f"logged   {count} times: {what[:300]}" for what, count in result.errors.most_common(20)),
        *(f"FOUND    {each}" for each in result.findings[:20]),
        f"{len(result.findings)} findings",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
