"""Put Escher into a real control plane with a history, and check that others are untouched.

    python -m loadtests.history --minutes 10

There are 200 pods, other schedulers' gangs half bound, a budget, a quota, and nodes with leftovers of an earlier
installation. Escher places gangs beside them, is killed once, and is uninstalled. The command prints everything of
others that was touched, harmed, or left behind. Exit code 1 if there is anything, 0 if not. The control plane is built
from source the first time (Go, some minutes).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from lab.controlplane.clusters import RealCluster
from loadtests.history.control_plane import play
from loadtests.history.outcome import Outcome


def told(outcome: Outcome) -> str:
    """The findings, and the numbers of the service's writes."""
    rows = [f"{what:<40}{number:>8}" for what, number in sorted(outcome.writes.items())]
    findings = [f"found: {each}" for each in outcome.findings] or ["nothing was touched, harmed or left behind"]
    return "\n".join(["writes of the service:", *rows, "", *findings])


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtests.history", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--minutes", type=float, default=10.0, help="for how long Escher is there (default: 10)")
    wanted = parser.parse_args(given)
    if wanted.minutes < 0.5:
        parser.error("--minutes must be 0.5 or more")
    with RealCluster.start(service=False, audit=True) as cluster:
        outcome = play(cluster, wanted.minutes * 60)
    sys.stdout.write(f"{told(outcome)}\n")
    return 1 if outcome.findings else 0


if __name__ == "__main__":
    sys.exit(main())
