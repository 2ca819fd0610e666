"""Loads a service with Locust, checks what is left when the load has ended, and reports it.

    python -m loadtests.load --locust .venv-load/bin/locust
    python -m loadtests.load --locust .venv-load/bin/locust --shape spike --time 5m --users 40 --who pods management
    python -m loadtests.load --again results/load-20260101-120000

`make loadtest` calls it, with SHAPE, TIME, USERS, RATE, WHO, NODES, REAL, HOST, REFERENCE and PAGE as options;
`make soak` as well, for half an hour at 200 verbs a second.

It starts a cluster for the run, embedded or real. `--who` takes names of users from loadtests/locustfile.py, or verbs,
pods, management. The default is pods and management, or Scheduler with --host or --reference.

Exit code 1 if a call failed, an invariant does not hold at the end, or something grew in a soak; 2 for wrong use, 0
otherwise.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from extender.shipped.errors import ClusterError, WrongUse
from loadtests.load import soak
from loadtests.load.plan import plan_of
from loadtests.load.run import LOCUST_LOG, run
from loadtests.load.shapes import SECONDS, SOAK
from loadtests.shared.progress import say

_SHOWN = 8


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m loadtests.load", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--shape", default="", help=f"{', '.join(SECONDS)} (default: steady)")
    usual = ", ".join(f"{shape} {seconds:g} s" for shape, seconds in SECONDS.items())
    parser.add_argument("--time", default="", help=f"how long, such as 20s, 5m, 1h30m (default: {usual})")
    parser.add_argument("--minutes", default="", help="how long, as a number of minutes; instead of --time")
    parser.add_argument("--users", default="", help="at most so many at a time (default: 12)")
    parser.add_argument(
        "--rate", default="", help="verbs a second, of all users (default: as fast as they are answered)"
    )
    parser.add_argument("--who", nargs="*", default=(), help="which users")
    parser.add_argument("--nodes", default="", help="of the cluster (default: 100)")
    parser.add_argument("--real", action="store_true", help="a real control plane, not the embedded cluster (Go)")
    parser.add_argument("--host", default="", help="URL of a service that runs already: no cluster is started")
    parser.add_argument("--reference", default="", help="1: the plain extender in Go is asked as well (Go); or its URL")
    parser.add_argument("--page", action="store_true", help="Locust's own web page, on this machine alone")
    parser.add_argument("--locust", type=Path, default=Path(".venv-load/bin/locust"), help="the command")
    parser.add_argument("--results", type=Path, default=Path("results"), help="where the run's folder is made")
    parser.add_argument("--again", type=Path, metavar="FOLDER", help="only make the report of the run there again")
    return parser.parse_args(given)


def _carried_out(said: argparse.Namespace, command: str) -> int:
    # matplotlib takes a second to import, and is not needed to reject a wrong option.
    if said.again is not None:
        from loadtests.load.results.report import write_report

        sys.stdout.write("".join(f"{each}\n" for each in write_report(said.again)))
        return 0
    plan = plan_of(
        users=said.users,
        rate=said.rate,
        time=said.time,
        minutes=said.minutes,
        shape=said.shape,
        who=said.who,
        nodes=said.nodes,
        real=said.real,
        host=said.host,
        reference=said.reference,
        page=said.page,
    )
    result = run(plan, said.results, locust=said.locust.absolute(), command=command, say=say)
    from loadtests.load.results.report import summary, write_report

    written = write_report(result.folder)
    sys.stdout.write(f"{summary(result.folder)}\n\n")
    if plan.shape == SOAK:
        sys.stdout.write("".join(f"{each}\n" for each in soak.told(result.folder, result.load_seconds)) + "\n")
    for check, found in result.findings.items():
        for each in found[:_SHOWN]:
            sys.stdout.write(f"{check}: {each}\n")
        if len(found) > _SHOWN:
            sys.stdout.write(f"{check}: and {len(found) - _SHOWN} more\n")
    if result.locust:
        sys.stdout.write(f"calls failed, or Locust did: {result.folder / LOCUST_LOG}\n")
    sys.stdout.write(f"{result.violations} findings; {', '.join(str(each) for each in written[:2])}\n")
    return result.exit_code


def main(given: Sequence[str] | None = None) -> int:
    said = arguments(given)
    words = sys.argv[1:] if given is None else given
    try:
        return _carried_out(said, shlex.join(["python", "-m", "loadtests.load", *words]))
    except WrongUse as error:
        sys.stderr.write(f"loadtest: {error}\n")
        return 2
    except ClusterError as error:
        sys.stderr.write(f"loadtest: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
