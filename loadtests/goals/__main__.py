"""Measures the figures that Escher should reach, and prints each with its goal and earlier result.

    python -m loadtests.goals                                   # all but those of a real control plane; minutes
    python -m loadtests.goals --compare results/compare-1       # and those, from runs of `escher compare`
    python -m loadtests.goals --only resources                  # on a real control plane of its own (Go); ten minutes
    python -m loadtests.goals --only http --blocks 60

A figure has reached a bound, or missed it, if its whole 95 % interval is on that side. Each result is appended to
--history as a line. docs/performance.md describes the measurements.

Exit code 0 if everything requested was measured, whatever the result; 1 if a measurement failed, 2 for wrong use.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

from extender.shipped.errors import ClusterError
from lab.compare import comparing, runs
from loadtests.goals import at_scale, control_plane, core_costs, http_verbs, resource_costs
from loadtests.goals.measuring.cores import disturbance
from loadtests.goals.measuring.history import Broken, History, Line, Where
from loadtests.goals.measuring.measured import Measured
from loadtests.goals.measuring.rows import BY_NAME, COMPARE, CORE, HTTP, RESOURCES, SCALE
from loadtests.goals.measuring.table import table
from loadtests.shared.progress import say

HISTORY = Path("results/bench-history.csv")


MEASURES: Mapping[str, Callable[[argparse.Namespace], Iterator[Measured]]] = {
    HTTP: lambda said: http_verbs.measures(blocks=said.blocks, seed=said.seed, pin=said.pin),
    CORE: lambda said: core_costs.measures(),
    SCALE: lambda said: at_scale.measures(),
    RESOURCES: lambda said: resource_costs.measures(seed=said.seed),
}
"""Measures that run now. A new measure adds a line here, and `rows` names it."""
BY_NAME_ONLY = frozenset({RESOURCES})
"""Measures that need a real control plane: they run only if `--only` names them."""


class Source(NamedTuple):
    """Where a run's figures come from (commit, time, machine), and how to get them."""

    where: Where
    measures: Callable[[], Iterator[Measured]]


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m loadtests.goals", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    compare = "runs of `escher compare`, real control plane"
    parser.add_argument("--compare", type=Path, nargs="+", default=(), metavar="FOLDER", help=compare)
    only = f"these measures alone (default: all but {', '.join(BY_NAME_ONLY)})"
    parser.add_argument("--only", nargs="+", choices=(COMPARE, *MEASURES), help=only)
    parser.add_argument("--history", type=Path, default=HISTORY, metavar="FILE", help=f"(default: {HISTORY})")
    parser.add_argument("--blocks", type=int, default=30, help="of calls over HTTP, for each figure (default: 30)")
    parser.add_argument("--seed", type=int, default=1, help="draws the order of calls and of nodes (default: 1)")
    parser.add_argument("--no-pin", dest="pin", action="store_false", help="nobody has a core of its own")
    said = parser.parse_args(given)
    if said.blocks < 1:
        parser.error(f"--blocks should be 1 or more, found {said.blocks}")
    if COMPARE in (said.only or ()) and not said.compare:
        parser.error(f"--only {COMPARE} needs --compare FOLDER")
    return said


def sources(said: argparse.Namespace) -> Iterator[Source]:
    """Yields the requested sources. Raises runs.Unreadable, and OSError."""
    chosen = said.only or [each for each in (COMPARE, *MEASURES) if each not in BY_NAME_ONLY]
    for folder in said.compare if COMPARE in chosen else ():
        recorded = runs.read(folder)
        if why := control_plane.unfit(recorded):
            say(f"{folder} tells none of these figures: {why}")
        else:
            yield Source(control_plane.where(recorded), partial(control_plane.measures, recorded))
    now = here()
    for name, measures in MEASURES.items():
        if name in chosen:
            yield Source(now, partial(measures, said))


def here() -> Where:
    machine = comparing.machine()
    return Where(
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=comparing.commit(),
        cores=machine["cores"],
        processor=machine["processor"],
    )


def line_of(found: Measured, where: Where) -> Line:
    line = Line(**asdict(where), **asdict(found))
    row = BY_NAME.get(found.row)
    return line if row is None else replace(line, goal=row.goal, must=row.must)


def main(given: Sequence[str] | None = None) -> int:
    said = arguments(given)
    try:
        kept, chosen = History(said.history), list(sources(said))
    except (Broken, runs.Unreadable, OSError) as error:
        sys.stderr.write(f"goals: {error}\n")
        return 2
    if warning := disturbance(os.getloadavg()[0], os.cpu_count() or 1):
        say(warning)
    found: dict[str, Measured] = {}
    failed = False
    for source in chosen:
        try:
            for each in source.measures():
                found[each.row] = each
                kept.keep(line_of(each, source.where))
        except (ClusterError, OSError, RuntimeError) as error:
            sys.stderr.write(f"goals: {error}\n")
            failed = True
    sys.stdout.write(table(found, kept.before([source.where for source in chosen]), {COMPARE, *MEASURES}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
