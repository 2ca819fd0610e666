"""Put a faulty proxy between the service and the API server, and look for what is lost.

    python -m loadtests.faults --runs 50 --seed 7
    python -m loadtests.faults --runs 1 --seed 31 --rate lose-answer=0.3 --rate twice=0

Each run has a seed, one higher than that of the run before. It draws gangs of 2 to 8, ordinary pods and ephemeral
resources; some of them are soon deleted or changed. It also draws the kinds of faults (delays, losses, repeats, cuts),
and which request and which watch event each fault meets. Everything is created under faults. Then the proxy is honest,
and what is left is checked from outside. Then everything is deleted under faults, and what is left is checked again.
The harm witness (loadtests/harm) follows what the service evicts and deletes.

{kinds}

The same seed does the same work, and the same to the same attempt at the same thing; the machine decides when things
meet. Exit code 1 if anything was found, 0 if not, 130 if interrupted: the results so far are printed. The control plane
is built from source the first time (Go, some minutes).
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence

import msgspec

from loadtests.chaos.rest import CHECKS
from loadtests.faults.draw import IN_WORDS, KINDS, USUAL, BadRates, Kind, checked
from loadtests.faults.run import Result, runs
from loadtests.shared.progress import say

_SHOWN = 8
_INTERRUPTED = 130
"""The exit code after SIGINT."""


def table(results: Sequence[Result]) -> str:
    """The summary: what was done, what went wrong on purpose, and what was found."""
    faults: Counter[Kind] = sum((each.faults for each in results), Counter())
    settled = sorted(each.settled_after for each in results)
    rows: list[tuple[str, object]] = [
        ("runs", len(results)),
        ("pods created", sum(each.pods_created for each in results)),
        ("pods bound", sum(each.pods_bound for each in results)),
        ("gangs created", sum(each.gangs_created for each in results)),
        ("gangs and pods deleted early", sum(each.units_cancelled for each in results)),
        ("pods evicted and made anew", sum(each.evicted for each in results)),
        ("settled after, median", f"{statistics.median(settled):.1f} s"),
        ("settled after, longest", f"{settled[-1]:.1f} s"),
        ("took, mean of a run", f"{statistics.mean(each.seconds for each in results):.1f} s"),
        ("faults:", sum(faults.values())),
        *((f"  {IN_WORDS[kind]} ({kind})", faults[kind]) for kind in KINDS),
        ("found:", sum(not each.is_clean for each in results)),
        *((f"  {check}", sum(len(each.findings[check]) for each in results)) for check in CHECKS),
    ]
    lines = [f"{name:<60}{value:>10}" for name, value in rows]
    for each in results:
        if each.is_clean and each.lingered:
            lines.append(f"seed {each.seed} settled after {each.settled_after:.0f} s: {each.lingered[0]}")
    for each in results:
        if not each.is_clean:
            lines.append(f"seed {each.seed}: {', '.join(name for name, found in each.findings.items() if found)}")
    return "\n".join(lines)


def details(result: Result) -> str:
    """The findings of a run, and where to look further."""
    lines = [f"seed {result.seed} found something; again with: {again(1, result.seed)}"]
    for check, found in result.findings.items():
        lines += [f"{check}: {each}" for each in found[:_SHOWN]]
        if len(found) > _SHOWN:
            lines.append(f"{check}: and {len(found) - _SHOWN} more")
    return "\n".join([*lines, *result.evidence, f"logs of the components: {result.logs}"])


def again(count: int, seed: int, more: str = "") -> str:
    return f'make faults FAULTS_ARGS="--runs {count} --seed {seed}{more}"'


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """The parsed arguments; `rates` is made of all --rate."""
    kinds = "\n".join(f"    {kind:<14} {IN_WORDS[kind]}, {USUAL[kind]:.1%}" for kind in KINDS)
    about = (__doc__ or "").format(kinds=f"The faults, and how frequent each is on the average:\n\n{kinds}")
    parser = argparse.ArgumentParser(prog="python -m loadtests.faults", description=about)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--runs", type=int, default=1000, help="how many (default: 1000)")
    parser.add_argument("--seed", type=int, help="of the first run (default: a new one)")
    parser.add_argument("--nodes", type=int, default=16, help="nodes of 8 CPU (default: 16)")
    parser.add_argument(
        "--rate",
        action="append",
        default=[],
        metavar="FAULT=SHARE",
        help="how frequent a fault is, from 0 to 1; may be given for several",
    )
    parser.add_argument("--json", action="store_true", help="the results as JSON on standard output, not as a table")
    parsed = parser.parse_args(given)
    if parsed.runs < 1 or parsed.nodes < 2:
        parser.error("--runs must be 1 or more, --nodes 2 or more")
    try:
        parsed.rates = checked({kind: float(share) for kind, _, share in (each.partition("=") for each in parsed.rate)})
    except BadRates as error:
        parser.error(str(error))
    except ValueError:
        parser.error("--rate wants a fault and a number, such as lose-answer=0.1")
    if parsed.seed is None:
        parsed.seed = random.SystemRandom().randrange(10**6)
    return parsed


def main(given: Sequence[str] | None = None) -> int:
    wanted = arguments(given)
    more = "".join(f" --rate {each}" for each in wanted.rate)
    if wanted.nodes != 16:
        more += f" --nodes {wanted.nodes}"
    say(f"seed {wanted.seed}; again with: {again(wanted.runs, wanted.seed, more)}\n")
    results: list[Result] = []
    try:
        _carry_out(wanted, results)
    except KeyboardInterrupt:
        say(f"\ninterrupted after {len(results)} of {wanted.runs} runs\n")
    if wanted.json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(results), indent=1).decode() + "\n")
    elif results:
        sys.stdout.write(f"\n{table(results)}\n\nagain with: {again(wanted.runs, wanted.seed, more)}\n")
    if len(results) < wanted.runs:
        return _INTERRUPTED
    return 0 if all(each.is_clean for each in results) else 1


def _carry_out(wanted: argparse.Namespace, results: list[Result]) -> None:
    """Does all runs, and appends each result to `results` when it arrives."""
    began = time.monotonic()
    seeds = range(wanted.seed, wanted.seed + wanted.runs)
    for result in runs(seeds, wanted.rates, nodes=wanted.nodes, say=say):
        results.append(result)
        lost = sum(not each.is_clean for each in results)
        left = (time.monotonic() - began) / len(results) * (wanted.runs - len(results))
        say(
            f"{len(results)} of {wanted.runs}, seed {result.seed} in {result.seconds:.1f} s: {result.pods_bound} pods "
            f"bound, {result.faults.total()} faults; {lost} runs found something; {left / 60:.0f} min left"
        )
        if not result.is_clean:
            say("\n" + details(result) + "\n")


if __name__ == "__main__":
    sys.exit(main())
