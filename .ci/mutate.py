"""Tries mutants faster than `mutmut run`: tests are collected once, and those most likely to notice come first.

    make mutants MUTANTS_ARGS='"extender.core.ledger.units.x_add__mutmut_1"'     # makes all mutants, and learns who
    calls what .venv-mutants/bin/python .ci/mutate.py "extender.core.gangs.state.partial_gangs.*"
    "extender.app.effects.eviction.*" .venv-mutants/bin/python .ci/mutants.py                               # the table,
    and the survivors

For each mutant a copy of this process is forked, which runs the tests that come by the mutated function: those of the
module's own file first, then those that have noticed others of the function, then the quickest. What they would take is
bounded by --seconds: a mutant that survives until then counts as survived. Mutants that mypy refuses are not tried.
Results are kept in mutants/tried.jsonl as they come, so a run can be interrupted; `--again` tries survivors anew, with
the tests as they are now (whole files named by --with come first). Remove mutants/ when the code has changed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import shutil
import signal
import sys
import time
from collections import Counter, defaultdict
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
MUTANTS = ROOT / "mutants"
TRIED, REFUSED = MUTANTS / "tried.jsonl", MUTANTS / "refused.json"
SURVIVED, NO_TESTS, TIMED_OUT, BY_MYPY = 0, 33, 36, 37


def refused() -> set[str]:
    """Mutants that mypy refuses. It is asked once, which takes minutes."""
    if not REFUSED.exists():
        from mutmut.mutation.file_mutation import filter_mutants_with_type_checker

        os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        sys.stderr.write("mypy looks at all mutants\n")
        REFUSED.write_text(json.dumps(sorted(filter_mutants_with_type_checker())))
    return set(json.loads(REFUSED.read_text()))


def tried() -> dict[str, int]:
    lines = TRIED.read_text().splitlines() if TRIED.exists() else []
    return {each["mutant"]: each["code"] for each in map(json.loads, lines)}


def keep(results: dict[str, int]) -> None:
    """What `mutmut` itself reads."""
    for path in MUTANTS.rglob("*.py.meta"):
        meta = json.loads(path.read_text())
        codes = meta["exit_code_by_key"]
        codes |= {mutant: results[mutant] for mutant in codes if mutant in results}
        path.write_text(json.dumps(meta))


class Loop:
    """A pytest plugin, which runs tests in its own way."""

    def __init__(self, todo: list[str], wanted: argparse.Namespace) -> None:
        self._todo, self._wanted = todo, wanted
        stats = json.loads((MUTANTS / "mutmut-stats.json").read_text())
        self._callers: dict[str, list[str]] = stats["tests_by_mangled_function_name"]
        self._seconds: dict[str, float] = stats["duration_by_test"]
        self._noticed: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed |= report.failed

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        for number, mutant in enumerate(self._todo, 1):
            code, last = self._try(session, items, mutant)
            with TRIED.open("a") as file:
                file.write(json.dumps({"mutant": mutant, "code": code, "by": last}) + "\n")
            sys.stderr.write(f"{number} of {len(self._todo)}: {'survived' if code == SURVIVED else code} {mutant}\n")
        return True

    def _chosen(self, items: dict[str, pytest.Item], mutant: str) -> list[str]:
        function = mutant.rpartition("__mutmut_")[0]
        own, noticed = f"/test_{mutant.split('.')[2]}.py", self._noticed[function]
        # Whole files: a test that is new is not among those that are known to come by.
        first = [test for test in items if own in test or any(test.startswith(each) for each in self._wanted.first)]
        first.sort(key=lambda test: -noticed[test])
        rest = [test for test in self._callers.get(function, ()) if test in items]
        rest.sort(key=lambda test: (-noticed[test], self._seconds.get(test, 0.0)))
        chosen, left = first, self._wanted.seconds
        for test in rest:
            left -= self._seconds.get(test, 0.0)
            if left < 0:
                break
            chosen.append(test)
        return list(dict.fromkeys(chosen))

    def _try(self, session: pytest.Session, items: dict[str, pytest.Item], mutant: str) -> tuple[int, str]:
        tests = self._chosen(items, mutant)
        if not tests:
            return NO_TESTS, ""
        until = time.monotonic() + 30 + 6 * sum(self._seconds.get(test, 0.0) for test in tests)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            self._run(session, [items[test] for test in tests], mutant, writing)
        os.close(writing)
        said, code = b"", None
        while code is None:
            ready, _, _ = select.select([reading], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                os.killpg(child, signal.SIGKILL)
                code = TIMED_OUT
            elif more := os.read(reading, 65536):
                said += more
            else:
                break
        os.close(reading)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        code = status if code is None else code
        last = said.decode().rstrip("\n").rpartition("\n")[2]
        if code != SURVIVED:
            self._noticed[mutant.rpartition("__mutmut_")[0]][last] += 1
        return code, last

    def _run(self, session: pytest.Session, tests: list[pytest.Item], mutant: str, writing: int) -> None:
        """In the copy; it never returns."""
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        os.environ["MUTANT_UNDER_TEST"] = mutant
        code = 2
        try:
            for test, following in zip(tests, [*tests[1:], None], strict=True):
                os.write(writing, f"{test.nodeid}\n".encode())
                session.config.hook.pytest_runtest_protocol(item=test, nextitem=following)
                if self._failed:
                    break
            code = int(self._failed)
        finally:
            os._exit(code)


def options() -> list[str]:
    """Of pytest, as `mutmut` has them from pyproject.toml."""
    import tomllib

    settings: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mutmut"]
    return ["-q", *settings["pytest_add_cli_args"], *settings["pytest_add_cli_args_test_selection"]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "patterns", nargs="+", help='which mutants, such as "extender.core.gangs.state.partial_gangs.*"'
    )
    parser.add_argument("--again", action="store_true", help="try those anew that survived")
    parser.add_argument("--with", dest="first", nargs="*", default=[], metavar="FILE", help="tests to try first")
    parser.add_argument("--seconds", type=float, default=25.0, help="bound of the tests for one mutant (default: 25)")
    wanted = parser.parse_args()
    os.chdir(ROOT)
    known = dict.fromkeys(refused(), BY_MYPY) | tried()
    keep(known)
    todo = []
    for path in sorted(MUTANTS.rglob("*.py.meta")):
        for mutant in json.loads(path.read_text())["exit_code_by_key"]:
            if any(fnmatch(mutant, pattern) for pattern in wanted.patterns) and (
                known.get(mutant) in (SURVIVED, NO_TESTS) if wanted.again else mutant not in known
            ):
                todo.append(mutant)
    # What is done when it is interrupted is a sample.
    random.Random(0).shuffle(todo)
    shutil.copytree(ROOT / "tests", MUTANTS / "tests", dirs_exist_ok=True)
    os.chdir(MUTANTS)
    sys.path.insert(0, str(MUTANTS))
    os.environ |= {"HYPOTHESIS_PROFILE": "mutants", "MUTANT_UNDER_TEST": ""}
    try:
        code = pytest.main(options(), plugins=[Loop(todo, wanted)])
    finally:
        keep(tried())
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
