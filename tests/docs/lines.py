"""Lines of code, counted: physical lines that bear code, without blank lines, comments and docstrings.

python -m tests.docs.lines            # the tables of docs/policies/README.md
python -m tests.docs.lines --write    # these are written there
python -m tests.docs.lines FILE ...   # of these files, each and together
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from lab.compare.lines import code_lines

ROOT = Path(__file__).parents[2]


def lines_of(*files: str) -> int:
    """Of all of these together, which are named from the root of the repository."""
    return sum(code_lines((ROOT / file).read_text()) for file in files)


class Row(NamedTuple):
    policy: str
    page: str
    esl: Sequence[str]
    """Its files in `extender/esl`; none: it is in the extender alone."""
    type: str = ""
    """The EscherPolicy, or what does the same in the extender."""
    extender: Sequence[str] = ()
    paper: str = ""


_GANG = ("gang_spec", "gang_keys", "gang_times", "gang_state", "gang_members", "gang_life", "unreserved_members")
_GHOSTS = (*_GANG, "departed", "gang_run", "ghost_manifest")
_FILTERS = "extender/filters/escher_policies"
_GOVERNING = "extender/core/policies/policy_matching.py"

_ASKED = ["extender/app/escher_policies/esl_controller.py", "extender/esl/hosted.py"]
"""What carries out each policy that is asked, by its ESL."""
ROWS = (
    Row("locality", "primitives.md", ["locality"]),
    Row("signal", "primitives.md", ["signal"], "`signal`", _ASKED),
    Row("queue, mutex", "primitives.md", ["queue"], "`queue`", _ASKED),
    Row("co-location", "co-location.md", ["co_location"], "`co-location`", [f"{_FILTERS}/co_location.py"]),
    Row("anti-affinity", "anti-affinity.md", ["anti_affinity"], "`anti-affinity`", [f"{_FILTERS}/anti_affinity.py"]),
    Row("balance", "balance.md", ["balance"], "`balance`", [f"{_FILTERS}/balance.py"]),
    Row("bin packing", "bin-packing.md", ["packing"], "`bin-packing`", [f"{_FILTERS}/bin_packing.py"]),
    Row("data locality", "data-locality.md", ["data_locality"], "`data-locality`", [f"{_FILTERS}/data_locality.py"]),
    Row("soft constraints", "soft.md", ["soft"], "`soft`", [_GOVERNING, "extender/app/cache/alternatives.py"]),
    Row("objective", "objective.md", ["objective"], "`objective`", [f"{_FILTERS}/objective.py"]),
    Row("weighted fair queueing", "fair-share.md", ["fair_queueing"]),
    Row("fair sharing of nodes", "fair-share.md", ["fair_share"], "`shares`", _ASKED),
    Row("fair order of who waits", "fair-share.md", [], "`fair-share`", [f"{_FILTERS}/fair_share.py"]),
    Row("priority", "priority.md", ["priority"], "`priority`", [f"{_FILTERS}/priority.py"]),
    Row(
        "AND, OR",
        "composition.md",
        ["composed"],
        "annotation `a,b`, `a\\|b`",
        [_GOVERNING, f"{_FILTERS}/named.py", f"{_FILTERS}/feasible.py"],
    ),
    Row("Gandiva", "gandiva.md", ["gandiva"]),
    Row("AlphaZero", "gandiva.md", ["alpha_zero"]),
    Row("gang, AppSpace", "../gangs.md", [*_GHOSTS, "gang_turns"], paper="78"),
    Row("gang, LibSpace", "../gangs.md", [*_GHOSTS, "gang_turns"], paper="261"),
    Row("gang, in the scheduler", "../gangs.md", [], "gang", ["extender/filters/gang.py"], "1624"),
)
SHARED = {
    "what each is made of": ["base", "policy_esl", "view", "resource_sync", "offers", "several"],
    "where a pod would have room: balance, bin packing, fair queueing, priority": ["placing"],
    "launching pods: soft, OR, Gandiva": ["launching"],
    "parts in proportion: fair queueing, fair sharing": ["apportion"],
}
"""Files of `extender/esl` that several policies use, and for what."""
README = ROOT / "docs/policies/README.md"


def esl_files(names: Iterable[str]) -> list[str]:
    return [next((ROOT / "extender/esl").rglob(f"{name}.py")).relative_to(ROOT).as_posix() for name in names]


def core_of_gangs() -> list[str]:
    return [str(path.relative_to(ROOT)) for path in sorted((ROOT / "extender/core/gangs").rglob("*.py"))]


def table() -> str:
    """As docs/policies/README.md has it."""
    head = ["policy", "ESL, in `extender/esl`", "lines", "in the extender", "its file", "lines", "paper"]
    rows = [head, ["---"] * 2 + ["---:"] + ["---"] * 2 + ["---:"] * 2]
    for row in ROWS:
        extender = [*row.extender, *(core_of_gangs() if row.type == "gang" else [])]
        files = [f"`{file.removeprefix('extender/')}`" for file in row.extender]
        shown = ", ".join(f"`{name}`" for name in row.esl) if len(row.esl) < 4 else f"`{row.esl[-1]}` and `gang_*`"
        rows.append(
            [
                f"[{row.policy}]({row.page})",
                shown,
                str(lines_of(*esl_files(row.esl))) if row.esl else "",
                row.type,
                ", ".join([*files, *(["`core/gangs/`"] if row.type == "gang" else [])]),
                str(lines_of(*extender)) if extender else "",
                row.paper,
            ]
        )
    return "\n".join("| " + " | ".join(cells) + " |" for cells in rows) + "\n"


def shared() -> str:
    """As docs/policies/README.md has it, below the table."""
    rows = ["| shared, in `extender/esl` | for | lines |", "| --- | --- | ---: |"]
    for purpose, names in SHARED.items():
        files = ", ".join(f"`{name}`" for name in names)
        rows.append(f"| {files} | {purpose} | {lines_of(*esl_files(names))} |")
    return "\n".join(rows) + "\n"


def with_tables(page: str) -> str:
    """The page with both tables as they are now."""
    for written, head in ((table(), "| policy | ESL"), (shared(), "| shared, in")):
        before, found, rest = page.partition(head)
        if not found:
            raise ValueError(f"the page has no table that begins with {head!r}")
        _, _, after = (found + rest).partition("\n\n")
        page = f"{before}{written}\n{after}"
    return page


def said(arguments: list[str]) -> str:
    """What whoever calls it with these reads."""
    if arguments == ["--write"]:
        README.write_text(with_tables(README.read_text()))
        return ""
    if not arguments:
        return f"{table()}\n{shared()}"
    counted = {file: code_lines(Path(file).read_text()) for file in arguments}
    return "".join(f"{lines:6} {file}\n" for file, lines in counted.items()) + f"{sum(counted.values()):6}\n"


if __name__ == "__main__":
    sys.stdout.write(said(sys.argv[1:]))
