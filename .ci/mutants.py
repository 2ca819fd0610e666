"""Prints what `make mutants` has found so far: the table of docs/mutation.md, then the survivors."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

HEAD = "| module | mutants | refused by mypy | not tried | tried | killed | survived | killed, % |\n" + "|---" * 8 + "|"
MEANING = {None: "untried", 37: "refused", 0: "survived", 5: "survived", 33: "survived"}
"""By mutmut's codes; 5 and 33 are no tests at all. All others are a test that failed, or did not end in time."""


def row(name: str, count: Counter[str]) -> str:
    tried = count["killed"] + count["survived"]
    share = f"{100 * count['killed'] / tried:.1f}" if tried else ""
    numbers = (count.total(), count["refused"], count["untried"], tried, count["killed"], count["survived"])
    return f"| {name} | {' | '.join(map(str, numbers))} | {share} |"


total: Counter[str] = Counter()
rows, survivors = [HEAD], []
for path in sorted(Path("mutants/extender").rglob("*.py.meta")):
    if found := json.loads(path.read_text())["exit_code_by_key"]:
        meaning = {mutant: MEANING.get(code, "killed") for mutant, code in found.items()}
        survivors += [mutant for mutant, what in meaning.items() if what == "survived"]
        count = Counter(meaning.values())
        total += count
        rows.append(row(str(path.relative_to("mutants/extender")).removesuffix(".py.meta"), count))
rows.append(row("all", total))
sys.stdout.write("\n".join([*rows, "", "Survivors; `mutmut show NAME` prints one:", *survivors, ""]))
