"""Brought: approaches whose scheduler is somebody else's program, and what a control plane needs to run it.

They take part where the user gives the program; nothing of theirs is in this package.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from extender.shipped.errors import WrongUse
from lab.compare.vocabulary import COSCHEDULING
from lab.controlplane.schedulers import check_brought

_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Brought:
    """`program`: what it is and where it comes from, as it is worded to whoever has not given it. `config` of the
    scheduler; `definitions`: files of the custom resources that it reads."""

    program: str
    config: Path
    definitions: tuple[Path, ...]


BROUGHT: Mapping[str, Brought] = {
    COSCHEDULING: Brought(
        "./cmd/scheduler of sigs.k8s.io/scheduler-plugins, built with Go",
        _HERE / "coscheduling" / "scheduler.yaml",
        (_HERE / "coscheduling" / "podgroups.yaml",),
    )
}
"""By approach, which is also the name of the scheduler."""


def check(programs: Mapping[str, str], approaches: Sequence[str]) -> None:
    """Raises WrongUse where these approaches need other programs, or where one cannot be run."""
    for name, path in programs.items():
        if name not in BROUGHT:
            raise WrongUse(
                f"--scheduler-binary {name}={path}: that is no approach; one may be given for {', '.join(BROUGHT)}"
            )
        if name not in approaches:
            raise WrongUse(f"--scheduler-binary {name}={path}: --approach {name} is missing")
        check_brought(name, Path(path))
    for name in approaches:
        if name in BROUGHT and name not in programs:
            raise WrongUse(
                f"--approach {name} needs a scheduler that is not here: give it by --scheduler-binary {name}=PATH, "
                f"where PATH is {BROUGHT[name].program} (see docs/comparison.md)"
            )


def digest(program: Path) -> str:
    """By which a run tells which program it was."""
    with program.open("rb") as file:
        return f"sha256 {hashlib.file_digest(file, 'sha256').hexdigest()}"
