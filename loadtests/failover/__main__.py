"""Kills the leading replica at random moments; checks how soon another leads, and what is left.

    python -m loadtests.failover --kills 100 --seed 7

Two replicas of the service run on a real control plane, with leader election as by default. A forwarder replaces
kube-proxy, and connects kube-scheduler to the replica that the EndpointSlice names. Load, strikes and checks are those
of loadtests/chaos: partly bound gangs, leftover reservations, over-allocated nodes, the ledger against the cluster, and
harm. Each strike waits until the other replica could take over. A call every 10 ms through the one address measures how
long no verb was answered.

    --by kill    kill -9 (default): the other waits until the lease has expired
    --by end     SIGTERM, as in a rolling update: the leader releases the lease

Exit code 1 if anything was found, 0 if not; the times are printed and not judged. The control plane is built from
source the first time (Go, some minutes).
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from loadtests.chaos.__main__ import details, table
from loadtests.chaos.run import Result, run, strikes_for
from loadtests.failover.replicated import LOST, ReplicatedCluster, holding_for, spread
from loadtests.shared.progress import say

_REST = 5.0
"""Seconds between two strikes, in addition to what is drawn."""
_BY = {"kill": signal.SIGKILL, "end": signal.SIGTERM}


def fail_over(
    kills: int, *, nodes: int, seed: int, by: str = "kill", lease_seconds: int = 4, **more: Any
) -> tuple[Result, ReplicatedCluster]:
    """Returns the result, and the cluster, which has ended."""
    made: list[ReplicatedCluster] = []

    def start(**wishes: Any) -> ReplicatedCluster:
        cluster = holding_for(lease_seconds).start(**wishes)
        cluster.ended_by = _BY[by]
        made.append(cluster)
        return cluster

    # Else every gang would wait in the back-off from the last strike, and no gang would be hit while it is placed.
    strikes = [replace(each, between=each.between + _REST) for each in strikes_for([("service", kills)], seed)]
    result = run("leader", strikes, nodes=nodes, seed=seed, start=start, **more)
    return result, made[0]


def told(cluster: ReplicatedCluster) -> str:
    """Returns the distribution of the times, in words."""
    times = ", ".join(f"{name} {seconds:g} s" for name, seconds in spread(cluster.recoveries).items())
    lost = cluster.exits.count(LOST)
    return f"no verb was answered for: {times} ({len(cluster.recoveries)} fail-overs; leases lost unasked: {lost})"


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtests.failover", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--kills", type=int, default=100, help="strikes at the leader (default: 100)")
    parser.add_argument("--by", default="kill", choices=_BY, help="how it ends (default: kill)")
    parser.add_argument("--lease-seconds", type=int, default=4, help="as in the settings (default: 4, as there)")
    parser.add_argument("--nodes", type=int, default=32, help="nodes of 8 CPU (default: 32)")
    parser.add_argument("--seed", type=int, help="repeats load and strikes of an earlier run (default: a new one)")
    wanted = parser.parse_args(given)
    if wanted.kills < 1 or wanted.nodes < 2:
        parser.error("--kills must be 1 or more, --nodes 2 or more")
    seed = random.SystemRandom().randrange(10**6) if wanted.seed is None else wanted.seed
    result, cluster = fail_over(
        wanted.kills, nodes=wanted.nodes, seed=seed, by=wanted.by, lease_seconds=wanted.lease_seconds, say=say
    )
    again = f"--kills {wanted.kills} --by {wanted.by} --lease-seconds {wanted.lease_seconds}"
    again += f" --nodes {wanted.nodes} --seed {seed}"
    sys.stdout.write(f"{table([result])}\n\n{details(result)}\n{told(cluster)}\n")
    sys.stdout.write(f"seed {seed}; again with: python -m loadtests.failover {again}\n")
    return 0 if result.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
