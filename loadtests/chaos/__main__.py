"""Kill or pause parts of a real control plane at random moments, and look for what is left behind.

    python -m loadtests.chaos --target service --kills 100 --seed 7

Gangs of 2 to 32 and ordinary pods are placed all the time, run for some seconds and end; there are more than have room.
Ephemeral resources are set and taken back, some with a time to live, some with a pod as owner. Half of the strikes are
aimed at the creation of a gang: up to 30 ms after its last pod was created, or after its first member was seen bound.
After the last strike everything is left to settle, and then again with everything deleted. All the while the harm
witness (loadtests/harm) follows watches and audit log: each pod that leaves must have a proven reason.

    service      the extender's service, killed with -9 and started again.
    scheduler    kube-scheduler, the same.
    apiserver    kube-apiserver, the same.
    etcd         stopped for up to 4 s (SIGSTOP), then going on.
    all          each of them in turn, on a cluster of its own.

The seed draws load and strikes; the machine decides when exactly they meet, so a run can be repeated but not replayed.
Exit code 1 if anything was found, 0 if not. The control plane is built from source the first time (Go, some minutes).
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence

import msgspec

from loadtests.chaos.rest import CHECKS
from loadtests.chaos.run import Result, run, strikes_for
from loadtests.chaos.strikes import TARGETS
from loadtests.shared.progress import say

_SHOWN = 8


def table(results: Sequence[Result]) -> str:
    """One column for each run."""
    rows: list[tuple[str, list[str]]] = [
        ("", [each.what for each in results]),
        ("strikes", [str(each.struck.count) for each in results]),
        ("  after the creation of a gang", [str(each.struck.moments["created"]) for each in results]),
        ("  after a gang's first Binding", [str(each.struck.moments["bound"]) for each in results]),
        ("  with some gang in part", [str(each.struck.with_gangs_in_part) for each in results]),
        ("pods created", [str(each.pods_created) for each in results]),
        ("gangs created", [str(each.gangs_created) for each in results]),
        ("pods finished", [str(each.pods_finished) for each in results]),
        ("gangs and pods deleted early", [str(each.units_cancelled) for each in results]),
        ("pods evicted and made anew", [str(each.evicted) for each in results]),
        ("calls that set resources", [str(each.resources_set) for each in results]),
        ("longest recovery", [f"{each.struck.longest_recovery:.1f} s" for each in results]),
        ("settled after", [f"{each.settled_after:.1f} s" for each in results]),
        ("took", [f"{each.seconds:.0f} s" for each in results]),
        ("found:", ["" for _ in results]),
        *((f"  {check}", [str(len(each.findings[check])) for each in results]) for check in CHECKS),
    ]
    return "\n".join(f"{name:<45}" + "".join(f"{cell:>12}" for cell in cells) for name, cells in rows)


def details(result: Result) -> str:
    """The findings, and where to look further; empty if there are none."""
    lines = []
    for check, found in result.findings.items():
        lines += [f"{result.what}: {check}: {each}" for each in found[:_SHOWN]]
        if len(found) > _SHOWN:
            lines.append(f"{result.what}: {check}: and {len(found) - _SHOWN} more")
    lines += result.evidence
    if result.logs:
        lines.append(f"logs of the components: {result.logs}")
    return "\n".join(lines)


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m loadtests.chaos", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--target", default="all", choices=[*TARGETS, "all"], help="what is struck (default: all)")
    parser.add_argument("--kills", type=int, default=100, help="strikes at each target (default: 100)")
    parser.add_argument("--nodes", type=int, default=64, help="nodes of 8 CPU (default: 64)")
    parser.add_argument("--seed", type=int, help="repeats load and strikes of an earlier run (default: a new one)")
    parser.add_argument("--config", help="the service's settings (YAML), as of `escher serve --config`")
    parser.add_argument("--json", action="store_true", help="the results as JSON on standard output, not as a table")
    parsed = parser.parse_args(given)
    if parsed.kills < 1 or parsed.nodes < 2:
        parser.error("--kills must be 1 or more, --nodes 2 or more")
    if parsed.seed is None:
        parsed.seed = random.SystemRandom().randrange(10**6)
    return parsed


def main(given: Sequence[str] | None = None) -> int:
    wanted = arguments(given)
    more = ["--config", wanted.config] if wanted.config else []
    again = " ".join(
        [f"--target {wanted.target} --kills {wanted.kills} --nodes {wanted.nodes} --seed {wanted.seed}", *more]
    )
    say(f'seed {wanted.seed}; again with: make chaos CHAOS_ARGS="{again}"\n')
    results = []
    for target in TARGETS if wanted.target == "all" else [wanted.target]:
        strikes = strikes_for([(target, wanted.kills)], wanted.seed)
        results.append(run(target, strikes, nodes=wanted.nodes, seed=wanted.seed, service_arguments=more, say=say))
        say("\n" + details(results[-1]) + "\n")
    if wanted.json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(results), indent=1).decode() + "\n")
    else:
        sys.stdout.write(f'{table(results)}\n\nseed {wanted.seed}; again with: make chaos CHAOS_ARGS="{again}"\n')
    return 0 if all(each.is_clean for each in results) else 1


if __name__ == "__main__":
    sys.exit(main())
