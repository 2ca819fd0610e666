"""Runs: the folder of a comparison and its raw files, from which every figure comes.

    run.json     what was run, where and when.
    trials.csv   a row for each trial, written when it has ended.
    pods.csv     a row for each pod of a trial, written before the trial's own row.
    log.txt      the log of approaches that run in the comparison's own process.

Rows are appended, trial by trial, so that a run that was cut off can be continued. Pods of a trial without a row, and a
last line without an end, count as never written. A cell is empty if nothing was measured or seen.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import msgspec

RUN, TRIALS, PODS, LOG = "run.json", "trials.csv", "pods.csv", "log.txt"
DONE, STUCK = "done", "stuck"
MEMBER, ORDINARY, GHOST = "member", "ordinary", "ghost"
EMBEDDED, REAL = "embedded", "real"
DEFAULT_SAMPLING, NO_SAMPLING = "default", "off"


class Unreadable(ValueError):
    """A run's folder is invalid; the text has the file, the place in it, and the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """`began`: RFC 3339; `lines`: of policy code by approach, counted at the run's start.

    `continued`: the times at which it was continued."""

    command: str
    seed: int
    began: str
    machine: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, Any] = field(default_factory=dict)
    plan: Mapping[str, Any] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)
    continued: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRow:
    """`size` of each gang, 0 if they differ. `repetition`: the round; below 0 it warmed up.

    `seconds` it took. `reserved`: CPU-seconds that the service's ledger held without a bound pod. `binds`: requests of
    kube-scheduler to bind. `kept`: how far a policy other than gangs was kept, from 0 to 1 (see `policy_check`).
    """

    trial: int
    cluster: str
    nodes: int
    sampling: str
    workload: str
    size: int
    gangs: int
    approach: str
    repetition: int
    outcome: str
    seconds: float | None = None
    writes: float | None = None
    bytes: float | None = None
    attempts: float | None = None
    cpu_service: float | None = None
    cpu_scheduler: float | None = None
    cpu_apiserver: float | None = None
    rollbacks: float | None = None
    reserved: float | None = None
    binds: float | None = None
    kept: float | None = None
    cpu_client: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRow:
    """Seconds since the trial began; None: never seen. `gang` is empty for a pod of none.

    `role`: a member of a gang, an ordinary pod requested beside gangs, or a ghost, which an approach has created on its
    own. `cpu`: its requested CPU; `holds`: its CPU on the node, 0 for a member that its ghost let in, because the ghost
    holds that. `asked`: the time of its gang's request, which precedes the creation of members if an approach makes
    room first; None: the creation of its first member. `node`: where it was bound; empty: on none, or not known.
    """

    trial: int
    gang: str = ""
    pod: str
    created: float | None = None
    bound: float | None = None
    running: float | None = None
    gone: float | None = None
    asked: float | None = None
    role: str = MEMBER
    cpu: float | None = None
    holds: float | None = None
    node: str = ""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The finished part of a run, in the order in which it was written."""

    run: Run
    trials: Sequence[TrialRow]
    pods: Sequence[PodRow]

    def pods_by_trial(self) -> dict[int, list[PodRow]]:
        """Includes every trial, also one without pods."""
        found: dict[int, list[PodRow]] = {trial.trial: [] for trial in self.trials}
        for pod in self.pods:
            found[pod.trial].append(pod)
        return found


_Row = TypeVar("_Row", TrialRow, PodRow)


def read(folder: Path) -> Recorded:
    """Raises Unreadable, and OSError if a file is missing. Ignores unknown columns."""
    try:
        run = msgspec.json.decode((folder / RUN).read_bytes(), type=Run)
    except msgspec.DecodeError as error:
        raise Unreadable(f"{folder / RUN}: {error}") from None
    trials = _rows(folder / TRIALS, TrialRow)
    numbers: set[int] = set()
    for trial in trials:
        if trial.trial in numbers:
            raise Unreadable(f"{folder / TRIALS}: trial {trial.trial} is there twice")
        if trial.outcome not in (DONE, STUCK):
            raise Unreadable(f"{folder / TRIALS}: trial {trial.trial} should be done or stuck, found {trial.outcome!r}")
        numbers.add(trial.trial)
    return Recorded(run, trials, [pod for pod in _rows(folder / PODS, PodRow) if pod.trial in numbers])


class Recorder:
    """Writes a run. Only one may exist at a time for a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def begin(cls, folder: Path, run: Run) -> Recorder:
        """Begins a new run without trials. Raises FileExistsError if the folder has one."""
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / RUN).open("xb") as file:
            file.write(_encoded(run))
        _replace(folder / TRIALS, TrialRow, ())
        _replace(folder / PODS, PodRow, ())
        return cls(folder)

    @classmethod
    def go_on(cls, folder: Path) -> tuple[Recorder, Recorded]:
        """Prepares the existing run for continuation: leaves only finished trials in its files."""
        recorder, recorded = cls(folder), read(folder)
        recorder.keep(recorded)
        return recorder, recorded

    def keep(self, recorded: Recorded) -> None:
        """Rewrites the files with this run, these trials and their pods, and nothing else."""
        kept = {trial.trial for trial in recorded.trials}
        new = self._folder / f".{RUN}.new"
        new.write_bytes(_encoded(recorded.run))
        os.replace(new, self._folder / RUN)
        _replace(self._folder / PODS, PodRow, [pod for pod in recorded.pods if pod.trial in kept])
        _replace(self._folder / TRIALS, TrialRow, recorded.trials)

    @property
    def log(self) -> Path:
        return self._folder / LOG

    def add(self, trial: TrialRow, pods: Iterable[PodRow]) -> None:
        """Records the ended trial, which is kept whatever happens to this process."""
        # In this order, so that a trial with a row has all its pods.
        _append(self._folder / PODS, pods)
        _append(self._folder / TRIALS, [trial])


def _encoded(run: Run) -> bytes:
    return msgspec.json.format(msgspec.json.encode(run), indent=2) + b"\n"


def _rows(path: Path, kind: type[_Row]) -> list[_Row]:
    # Text after the last end of line was being written when the writer ended.
    text = path.read_bytes().rpartition(b"\n")[0].decode()
    reader = csv.reader(io.StringIO(text))
    header = next(reader, [])
    rows = []
    for cells in reader:
        try:
            named = {name: cell for name, cell in zip(header, cells, strict=True) if cell}
            rows.append(msgspec.convert(named, kind, strict=False))
        except (ValueError, msgspec.ValidationError) as error:
            raise Unreadable(f"{path}, line {reader.line_num}: {error}") from None
    return rows


def _written(rows: Iterable[TrialRow | PodRow]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(asdict(row).values() for row in rows)
    return text.getvalue()


def _append(path: Path, rows: Iterable[TrialRow | PodRow]) -> None:
    with path.open("a") as file:
        file.write(_written(rows))


def _replace(path: Path, kind: type[TrialRow] | type[PodRow], rows: Iterable[TrialRow | PodRow]) -> None:
    new = path.with_name(f".{path.name}.new")
    new.write_text(",".join(each.name for each in fields(kind)) + "\n" + _written(rows))
    os.replace(new, path)
