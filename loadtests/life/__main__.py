"""Live weeks of a cluster's life in virtual time, once for each seed, and look for defects.

    python -m loadtests.life --seeds 1000 --weeks 2 --jobs 2
    python -m loadtests.life --seeds 1 --first-seed 31 --weeks 2 --without restart,clock

No cluster is needed: API server, schedulers, controllers, kubelets and the service run in one process and in virtual
time. Each life has its own seed. Gangs of many shapes, ordinary pods, DaemonSets and another scheduler's gangs come and
go. Nodes are drained, upgraded and lost; pods are evicted, deleted and fail. Policies, quorums, PodGroups and budgets
change. Service and schedulers are restarted, and the clock of the service's machine is set. The happenings, by name:

{happenings}

It looks for these defects. Harm: a pod evicted that must not be. A crash: an error in the service, or its end. A
violation of an invariant. A hoard: room idle for longer than it may be. A long turn of the event loop: too many calls
of the service. At the end: pods that could run but do not, and room still held when everything is gone. The same seed
lives the same life. Exit code 1 if anything was found, 0 if not, 130 if interrupted: the results so far are printed.
"""

from __future__ import annotations

import argparse
import random
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, replace

import msgspec

from loadtests.life.happenings import WEIGHTS
from loadtests.life.life import KINDS, Finding, Plan, Result, live
from loadtests.shared.progress import say
from loadtests.shared.side_by_side import lives

_INTERRUPTED = 130
"""The exit code after SIGINT."""
_SHOWN = 5


def table(results: Sequence[Result]) -> str:
    """The summary: what was lived through, and what was found."""
    happened: Counter[str] = sum((Counter(each.happenings) for each in results), Counter())
    rows: list[tuple[str, object]] = [
        ("lives", len(results)),
        ("days lived", f"{sum(each.virtual_days for each in results):.1f}"),
        ("pods created", sum(each.pods_created for each in results)),
        ("pods bound", sum(each.pods_bound for each in results)),
        ("pods evicted by the service", sum(each.evictions for each in results)),
        ("starts of the service", sum(each.lives for each in results)),
        ("largest share of the CPU saved at once", f"{max(each.largest_share_saved for each in results):.0%}"),
        ("calls of the service in a turn that took long, at most", max(each.longest_turn for each in results)),
        ("CPU seconds, mean of a life", f"{sum(each.cpu_seconds for each in results) / len(results):.1f}"),
        ("happenings:", happened.total()),
        *((f"  {each}", happened[each]) for each in WEIGHTS),
        ("lives in which something was found:", sum(not each.is_clean for each in results)),
        *((f"  {kind}", sum(found.kind == kind for each in results for found in each.findings)) for kind in KINDS),
    ]
    lines = [f"{name:<60}{value:>10}" for name, value in rows]
    for each in sorted(results, key=lambda each: each.seed):
        if not each.is_clean:
            lines.append(f"seed {each.seed}: {each.findings[0].kind}: {each.findings[0].what[:120]}")
    return "\n".join(lines)


def details(result: Result, wanted: argparse.Namespace) -> str:
    """The findings in a life, and what had happened before."""
    lines = [f"seed {result.seed} found something; again with: {again(wanted, 1, result.seed)}"]
    for each in result.findings[:_SHOWN]:
        lines.append(f"{each.kind}, day {each.when}: {each.what}")
    if len(result.findings) > _SHOWN:
        lines.append(f"and {len(result.findings) - _SHOWN} more")
    return "\n".join([*lines, "what had happened last:", *_before(result.findings[0])])


def _before(found: Finding) -> list[str]:
    return [f"  {each}" for each in found.before]


def again(wanted: argparse.Namespace, seeds: int, first: int) -> str:
    said = f"--seeds {seeds} --first-seed {first} --weeks {wanted.weeks:g}"
    usual = Plan(0)
    if wanted.pace != usual.pace:
        said += f" --pace {wanted.pace:g}"
    if wanted.nodes != usual.nodes:
        said += f" --nodes {wanted.nodes}"
    if wanted.without:
        said += f" --without {','.join(sorted(wanted.without))}"
    return f"python -m loadtests.life {said}"


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    happenings = textwrap.fill(", ".join(WEIGHTS), 110, initial_indent="    ", subsequent_indent="    ")
    about = (__doc__ or "").format(happenings=happenings)
    parser = argparse.ArgumentParser(prog="python -m loadtests.life", description=about)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    usual = Plan(0)
    parser.add_argument("--seeds", type=int, default=1000, help="how many lives (default: 1000)")
    parser.add_argument("--first-seed", type=int, help="seed of the first life (default: a new one)")
    parser.add_argument("--weeks", type=float, default=usual.weeks, help="how long each is (default: 2)")
    parser.add_argument(
        "--pace", type=float, default=usual.pace, help="mean seconds between happenings (default: 1200)"
    )
    parser.add_argument("--nodes", type=int, default=usual.nodes, help="nodes of 8 CPU (default: 12)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    parser.add_argument("--without", default="", help="happenings to leave out, by name, with commas between")
    parser.add_argument("--go-on", action="store_true", help="a life goes on after something was found")
    parser.add_argument("--json", action="store_true", help="the results as JSON on standard output, not as a table")
    parsed = parser.parse_args(given)
    if min(parsed.seeds, parsed.jobs) < 1 or parsed.nodes < 2 or min(parsed.weeks, parsed.pace) <= 0:
        parser.error("--seeds and --jobs must be 1 or more, --nodes 2 or more, --weeks and --pace above 0")
    parsed.without = frozenset(filter(None, parsed.without.split(",")))
    if unknown := parsed.without - WEIGHTS.keys():
        parser.error(f"--without: nothing of that name happens: {', '.join(sorted(unknown))}")
    if parsed.first_seed is None:
        parsed.first_seed = random.SystemRandom().randrange(10**6)
    return parsed


def main(given: Sequence[str] | None = None) -> int:
    wanted = arguments(given)
    say(f"seeds from {wanted.first_seed}; again with: {again(wanted, wanted.seeds, wanted.first_seed)}\n")
    results: list[Result] = []
    try:
        _carry_out(wanted, results)
    except KeyboardInterrupt:
        say(f"\ninterrupted after {len(results)} of {wanted.seeds} lives\n")
    if wanted.json:
        told = msgspec.json.encode([asdict(each) for each in results])
        sys.stdout.write(msgspec.json.format(told, indent=1).decode() + "\n")
    elif results:
        repeated = again(wanted, wanted.seeds, wanted.first_seed)
        sys.stdout.write(f"\n{table(results)}\n\nagain with: {repeated}\n")
    if len(results) < wanted.seeds:
        return _INTERRUPTED
    return 0 if all(each.is_clean for each in results) else 1


def _carry_out(wanted: argparse.Namespace, results: list[Result]) -> None:
    """Runs all lives, and appends each result to `results` when it arrives."""
    began = time.monotonic()
    plan = Plan(0, wanted.weeks, wanted.pace, wanted.nodes, wanted.without, not wanted.go_on)
    plans = [replace(plan, seed=seed) for seed in range(wanted.first_seed, wanted.first_seed + wanted.seeds)]
    with closing(lives(live, plans, wanted.jobs)) as finished:
        for result in finished:
            results.append(result)
            found = sum(not each.is_clean for each in results)
            left = (time.monotonic() - began) / len(results) * (wanted.seeds - len(results))
            say(
                f"{len(results)} of {wanted.seeds}, seed {result.seed}: {result.pods_bound} pods bound, "
                f"{result.evictions} evicted, {result.cpu_seconds:.1f} s; found in {found}; {left / 60:.0f} min left"
            )
            if not result.is_clean:
                say("\n" + details(result, wanted) + "\n")


if __name__ == "__main__":
    sys.exit(main())
