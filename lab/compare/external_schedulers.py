"""Brought: approaches whose scheduler is another project's program, and what it needs to run.

They take part if the user gives the program; this package contains none of their code.
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
    """`program`: its source, for messages; `config`: its file; `definitions`: files of its CRDs."""

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
    """Raises WrongUse if these approaches need other programs, or if one cannot be run."""
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
    """The digest by which a run identifies the program."""
    with program.open("rb") as file:
        return f"sha256 {hashlib.file_digest(file, 'sha256').hexdigest()}"
