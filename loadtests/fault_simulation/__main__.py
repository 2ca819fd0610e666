"""Carry out one plan of faults for each seed, in virtual time, and look for violations.

    python -m loadtests.fault_simulation --seeds 10000 --jobs 2
    python -m loadtests.fault_simulation --seed 31                     # This seed only, reported in full.
    python -m loadtests.fault_simulation --replay failing-31.json      # The file that a failed seed left.
    python -m loadtests.fault_simulation --mutants --seeds 400         # Deliberate bugs: is each found?
    python -m loadtests.fault_simulation --seeds 1000 --against tests/frozen/histories.txt   # does it behave as it did?

No cluster is needed: API server, schedulers, kubelets, controllers and the service run in one process. A seed draws
what people ask for (gangs, pods, ephemeral resources, policies) and what goes wrong:

{faults}

The checks, in order of time: in each turn of the event loop, how much the service does. After each round in which the
service decided: its invariants. At each Binding: room, quorum, policy, and which replica leads. At rest, against the
objects: gangs in part, pods that could run but do not, the ledger, node status, leftovers. Then after a restart, and
after everything was taken back. A failing seed is reduced to the fewest faults and works that still fail, and written
to a file. The same seed, or file, is the same run: its digest shows it. Exit code 1 if anything was found (with
--mutants: if a bug was not found), 0 if not, 2 for a file that holds no plan, 130 if interrupted: then the results so
far are printed.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from itertools import count, islice
from pathlib import Path

from msgspec.structs import replace

from loadtests.fault_simulation import histories
from loadtests.fault_simulation.drawing import plan_of
from loadtests.fault_simulation.mutation import Verdict, verdicts
from loadtests.fault_simulation.mutation import table as table_of_mutants
from loadtests.fault_simulation.plan import MEANING, BadPlan, Plan, in_words, read, work_in_words, written
from loadtests.fault_simulation.run import Result, run
from loadtests.fault_simulation.shrinking import shrunk
from loadtests.shared.progress import say
from loadtests.shared.side_by_side import lives

_INTERRUPTED = 130
"""The exit code after SIGINT."""
_SHOWN = 5
_TELLS_EVERY = 100


def table(results: Sequence[Result]) -> str:
    """The summary: what was carried out, and what was found."""
    struck: Counter[str] = sum((Counter(each.faults) for each in results), Counter())
    found = [each for each in results if not each.is_clean]
    kinds = Counter(each.findings[0].kind for each in found)
    rows: list[tuple[str, object]] = [
        ("seeds", len(results)),
        ("  with two replicas", sum(each.plan.replicas > 1 for each in results)),
        ("hours of virtual time", f"{sum(each.virtual_seconds for each in results) / 3600:.1f}"),
        ("rounds after which it was looked", sum(each.looks for each in results)),
        ("pods bound", sum(each.bound for each in results)),
        ("pods evicted by the service", sum(each.evicted for each in results)),
        ("objects changed by restores", sum(each.restored for each in results)),
        ("starts of the service", sum(each.lives for each in results)),
        ("calls of the service in a turn that took long, at most", max(each.longest_turn for each in results)),
        ("CPU seconds, mean of a seed", f"{sum(each.cpu_seconds for each in results) / len(results):.2f}"),
        ("faults:", struck.total()),
        *((f"  {each}", struck[each]) for each in MEANING),
        ("seeds in which something was found:", len(found)),
        *((f"  {kind}", count) for kind, count in sorted(kinds.items())),
    ]
    lines = [f"{name:<60}{value:>10}" for name, value in rows]
    for each in sorted(found, key=lambda each: each.plan.seed):
        lines.append(f"seed {each.plan.seed}: {each.findings[0].kind}: {each.findings[0].what[:120]}")
    return "\n".join(lines)


def details(result: Result) -> str:
    """The plan of a run, and the findings of the run."""
    plan = result.plan
    lines = [f"seed {plan.seed}: {plan.nodes} nodes, {plan.replicas} of the service; asked for:"]
    lines += [f"  {work_in_words(each)}" for each in plan.works]
    lines += ["what goes wrong:", *(f"  {in_words(each)}" for each in plan.faults)]
    lines += [f"found at {each.when:.2f} s: {each.kind}: {each.what}" for each in result.findings[:_SHOWN]]
    if len(result.findings) > _SHOWN:
        lines.append(f"and {len(result.findings) - _SHOWN} more")
    if result.is_clean:
        lines.append(f"nothing was found in {result.virtual_seconds:.0f} s of virtual time, {result.bound} pods bound")
    return "\n".join([*lines, f"digest of the history: {result.digest}"])


def made_smaller(result: Result) -> Result:
    """The run of the smallest plan found that fails with the same kind of finding."""
    kind = result.findings[0].kind

    def fails(plan: Plan) -> bool:
        again = run(plan)
        return not again.is_clean and again.findings[0].kind == kind

    return run(shrunk(result.plan, fails))


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    said = "\n".join(f"    {kind}: {meaning}" for kind, meaning in MEANING.items())
    faults = "\n".join(textwrap.fill(each, 110, subsequent_indent="        ") for each in said.splitlines())
    about = (__doc__ or "").format(faults=textwrap.indent(faults, "    "))
    parser = argparse.ArgumentParser(prog="python -m loadtests.fault_simulation", description=about)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--seeds", type=int, help="how many seeds (default: 10000, with --mutants 400)")
    parser.add_argument("--first-seed", type=int, default=0, help="the first of them (default: 0)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    parser.add_argument("--noise", type=int, metavar="OBJECTS", help="noisy tenants make so many objects")
    parser.add_argument("--fault", default="", choices=("", *MEANING), help="only seeds that draw this fault")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--seed", type=int, help="this seed alone, told in full")
    which.add_argument("--replay", type=Path, metavar="FILE", help="the plan in this file alone, told in full")
    which.add_argument("--mutants", action="store_true", help="put in bugs, and say which are found")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write the digest of each seed's history to FILE")
    parser.add_argument("--against", type=Path, metavar="FILE", help="fail if a history differs from the one in FILE")
    parser.add_argument("--only", default="", help="with --mutants: these bugs, by name, with commas between")
    parser.add_argument("--no-shrinking", action="store_true", help="what fails is told as it was drawn")
    parser.add_argument(
        "--out", type=Path, default=Path(), help="the folder for files of what failed (default: where you are)"
    )
    parsed = parser.parse_args(given)
    if parsed.seeds is None:
        parsed.seeds = 400 if parsed.mutants else 10_000
    if min(parsed.seeds, parsed.jobs) < 1 or parsed.first_seed < 0:
        parser.error("--seeds and --jobs must be 1 or more, --first-seed 0 or more")
    if parsed.against is not None and not parsed.against.is_file():
        parser.error(f"--against: there is no file {parsed.against}")
    if not parsed.out.is_dir():
        parser.error(f"--out: there is no folder {parsed.out}")
    return parsed


def main(given: Sequence[str] | None = None) -> int:
    wanted = arguments(given)
    if wanted.mutants:
        return _mutants(wanted)
    if wanted.seed is not None:
        return _one(_with_noise(plan_of(wanted.seed), wanted.noise), wanted)
    if wanted.replay is not None:
        try:
            return _one(read(wanted.replay.read_bytes()), wanted)
        except (OSError, BadPlan) as error:
            say(f"--replay {wanted.replay}: {error}")
            return 2
    return _many(wanted)


def _one(plan: Plan, wanted: argparse.Namespace) -> int:
    result = run(plan)
    sys.stdout.write(details(result) + "\n")
    if result.is_clean:
        return 0
    _write(result, wanted)
    return 1


def _many(wanted: argparse.Namespace) -> int:
    say(f"seeds from {wanted.first_seed}")
    results: list[Result] = []
    try:
        _carry_out(wanted, results)
    except KeyboardInterrupt:
        say(f"\ninterrupted after {len(results)} of {wanted.seeds} seeds\n")
    if results:
        sys.stdout.write(f"\n{table(results)}\n")
    if len(results) < wanted.seeds:
        return _INTERRUPTED
    if wanted.record is not None:
        wanted.record.write_text(histories.text(results))
    others = [] if wanted.against is None else histories.differing(wanted.against.read_text(), results)
    for each in others:
        say(f"seed {each.plan.seed} has another history than {wanted.against} records: {each.digest[:16]}")
    return 0 if all(each.is_clean for each in results) and not others else 1


def _carry_out(wanted: argparse.Namespace, results: list[Result]) -> None:
    """Runs all seeds, and appends each result to `results` when it arrives."""
    began = time.monotonic()
    drawn = (_with_noise(plan_of(seed), wanted.noise) for seed in count(wanted.first_seed))
    plans = list(islice((each for each in drawn if _has(each, wanted.fault)), wanted.seeds))
    with closing(lives(run, plans, wanted.jobs)) as finished:
        for result in finished:
            results.append(result)
            if len(results) % _TELLS_EVERY == 0:
                found = sum(not each.is_clean for each in results)
                left = (time.monotonic() - began) / len(results) * (wanted.seeds - len(results))
                say(f"{len(results)} of {wanted.seeds}; found in {found}; {left / 60:.0f} min left")
            if not result.is_clean:
                say("\n" + details(result))
                _write(result, wanted)


def _with_noise(plan: Plan, objects: int | None) -> Plan:
    """The plan with `objects` objects for each noisy tenant; None leaves the drawn numbers."""
    if objects is None:
        return plan
    faults = [replace(each, times=objects) if each.kind == "noisy-tenant" else each for each in plan.faults]
    return replace(plan, faults=tuple(faults))


def _has(plan: Plan, fault: str) -> bool:
    return not fault or any(each.kind == fault for each in plan.faults)


def _write(result: Result, wanted: argparse.Namespace) -> None:
    """Writes a file for `--replay`; it holds a smaller plan, unless `--no-shrinking` is given."""
    smaller = result if wanted.no_shrinking else made_smaller(result)
    file = wanted.out / f"failing-{result.plan.seed}.json"
    file.write_bytes(written(smaller.plan))
    if smaller is not result:
        say(f"\nmade smaller:\n{details(smaller)}")
    say(f"again with: python -m loadtests.fault_simulation --replay {file}\n")


def _mutants(wanted: argparse.Namespace) -> int:
    names = tuple(filter(None, wanted.only.split(",")))
    found: list[Verdict] = []
    try:
        for verdict in verdicts(names, wanted.first_seed, wanted.seeds, wanted.jobs):
            found.append(verdict)
            say(str(verdict))
    except KeyboardInterrupt:
        sys.stdout.write(f"\n{table_of_mutants(found)}\n")
        return _INTERRUPTED
    except KeyError as error:
        say(f"--only: there is no bug {error}")
        return 2
    sys.stdout.write(f"\n{table_of_mutants(found)}\n")
    return 0 if all(each.is_found for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())
