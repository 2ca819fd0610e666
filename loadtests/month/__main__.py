"""Live months of ephemeral resources in virtual time, and check that all agree at quiet moments.

    python -m loadtests.month --seeds 1 --days 30
    python -m loadtests.month --seeds 20 --first-seed 100 --days 7 --jobs 2

No cluster is needed: API server, kubelets and the service run in one process and in virtual time. {applications}
applications say over HTTP what they want, at least once an hour. They want resources on their own node, on all nodes,
on those with a label, or on those with available CPU. Many have a time to live that each call renews. Meanwhile
credentials run out (once a day at least), etcd is restored from a backup, and the service is restarted. Its clock is
set, its watches are late. Nodes are replaced and registered again. Another controller removes what the service has
written to a node's status. People delete and edit objects.

Four times a day it is quiet. Then node status, the objects, the ledger, and the applications' last requests agree. A
repeated request has not moved a resource. The writes of the service on a day are in proportion to the changes. No turn
of the event loop has too many calls of the service. Exit code 1 if one of these is not so.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from statistics import median

from loadtests.month.month import Plan, Result, live
from loadtests.shared.progress import say
from loadtests.shared.side_by_side import lives


def table(results: Sequence[Result]) -> str:
    """The summary: what was lived through, what was written each day, and what was found."""
    days = [day for each in results for day in each.days]
    written = [sum(day.writes.values()) for day in days]
    by_kind: Counter[str] = sum((Counter(day.writes) for day in days), Counter())
    troubles: Counter[str] = sum((Counter(each.troubles) for each in results), Counter())
    rows: list[tuple[str, object]] = [
        ("months", len(results)),
        ("days", len(days)),
        ("quiet moments", sum(each.quiet_moments for each in results)),
        ("calls of applications, a day", f"{sum(day.asked for day in days) / len(days):.0f}"),
        ("  of them with something to change or to renew", f"{sum(day.changing for day in days) / len(days):.0f}"),
        ("API writes of the service, a day: median", f"{median(written):.0f}"),
        ("  most", max(written)),
        ("  most, as a share of what would be right", f"{max(day.share for day in days):.0%}"),
        *((f"  {kind}, mean", f"{count / len(days):.0f}") for kind, count in by_kind.most_common()),
        ("troubles", troubles.total()),
        *((f"  {each}", count) for each, count in troubles.most_common()),
        ("calls of the service in a turn that took long, at most", max(each.longest_turn for each in results)),
        ("CPU seconds, mean of a month", f"{sum(each.cpu_seconds for each in results) / len(results):.0f}"),
        ("months in which something was found", sum(bool(each.findings) for each in results)),
    ]  # fmt: skip
    return "\n".join(f"{name:<60}{value:>10}" for name, value in rows)


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    usual = Plan(0)
    parser = argparse.ArgumentParser(
        prog="python -m loadtests.month", description=(__doc__ or "").format(applications=usual.applications)
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--seeds", type=int, default=1, help="how many months (default: 1)")
    parser.add_argument("--first-seed", type=int, help="seed of the first (default: a new one)")
    parser.add_argument("--days", type=float, default=usual.days, help="how long each is (default: 30)")
    parser.add_argument("--applications", type=int, default=usual.applications, help="how many (default: 50)")
    parser.add_argument("--nodes", type=int, default=usual.nodes, help="nodes of 8 CPU (default: 10)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: 1)")
    parsed = parser.parse_args(given)
    if min(parsed.seeds, parsed.jobs, parsed.applications) < 1 or parsed.nodes < 2 or parsed.days <= 0:
        parser.error("--seeds, --jobs and --applications must be 1 or more, --nodes 2 or more, --days above 0")
    if parsed.first_seed is None:
        parsed.first_seed = random.SystemRandom().randrange(10**6)
    return parsed


def _live_and_tell(plan: Plan) -> Result:
    return live(plan, lambda said: say(f"{said}  "))


def main(given: Sequence[str] | None = None) -> int:
    wanted = arguments(given)
    repeated = (
        f"python -m loadtests.month --seeds {wanted.seeds} --first-seed {wanted.first_seed} --days {wanted.days:g}"
        f" --applications {wanted.applications} --nodes {wanted.nodes}"
    )
    say(f"seeds from {wanted.first_seed}; again with: {repeated}\n")
    plan = Plan(0, wanted.days, wanted.applications, wanted.nodes)
    plans = [replace(plan, seed=seed) for seed in range(wanted.first_seed, wanted.first_seed + wanted.seeds)]
    results: list[Result] = []
    # With several months at a time the lines about days would not show their month.
    with closing(lives(_live_and_tell if wanted.jobs == 1 else live, plans, wanted.jobs)) as finished:
        for result in finished:
            results.append(result)
            say(f"{len(results)} of {wanted.seeds}, seed {result.seed}: {len(result.findings)} findings\n")
            for each in result.findings[:5]:
                say(f"seed {result.seed}: {each}\n")
    sys.stdout.write(f"\n{table(results)}\n\nagain with: {repeated}\n")
    return int(any(each.findings for each in results))


if __name__ == "__main__":
    sys.exit(main())
