"""Runs: the folder of a comparison and its raw files, from which every figure comes.

run.json     what was run, where and when
trials.csv   a row for each trial, written when it has ended
pods.csv     a row for each pod of a trial; all of a trial's stand before the trial's own row
log.txt      what approaches that run in the comparison's own process had to say to their operators

Rows are appended, trial by trial, so that a run that was cut off can be continued: what a trial left that has no row of
its own, and a last line without an end, count as never written. A cell is empty where nothing was measured or seen.
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
    """A run's folder is not what it should be; says which file, where in it, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """`began` as RFC 3339. `lines`: of policy code, by approach, as they were counted when it ran. `continued`: when it
    was gone on with after it had been cut off."""

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
    """`size` of each gang, 0 if they differ. `repetition`: the round; below 0 it warmed up. `seconds` it took.

    `reserved`: CPU-seconds that the service's ledger held, and nobody was bound to. `binds`: how often kube-scheduler
    asked the service to bind a pod. `kept`: how far a policy other than gangs was kept, from 0 to 1 (see `kept`).
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

    `role`: a member of a gang, an ordinary pod that was asked for beside gangs, or a ghost: one that nobody asked for,
    and that an approach has made. `cpu` that it was asked for with, and `holds` of its node: a member that its ghost
    has let in holds none, for the ghost does.
    `asked`: when its gang was asked for, which is before the first member is created where an approach makes room
    first; None: with the creation of its first member. `node` on which it was bound; empty: on none, or not known.
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
    """A run as far as it is finished, in the order in which it was written."""

    run: Run
    trials: Sequence[TrialRow]
    pods: Sequence[PodRow]

    def pods_by_trial(self) -> dict[int, list[PodRow]]:
        """Every trial is there, one without pods as well."""
        found: dict[int, list[PodRow]] = {trial.trial: [] for trial in self.trials}
        for pod in self.pods:
            found[pod.trial].append(pod)
        return found


_Row = TypeVar("_Row", TrialRow, PodRow)


def read(folder: Path) -> Recorded:
    """Raises Unreadable, and OSError where a file is not there. Columns that are not known are not read."""
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
    """Writes a run. One at a time for a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def begin(cls, folder: Path, run: Run) -> Recorder:
        """A new run, nothing of which has been tried. Raises FileExistsError if the folder has one."""
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / RUN).open("xb") as file:
            file.write(_encoded(run))
        _replace(folder / TRIALS, TrialRow, ())
        _replace(folder / PODS, PodRow, ())
        return cls(folder)

    @classmethod
    def go_on(cls, folder: Path) -> tuple[Recorder, Recorded]:
        """The run that is there can be continued: its files have finished trials only."""
        recorder, recorded = cls(folder), read(folder)
        recorder.keep(recorded)
        return recorder, recorded

    def keep(self, recorded: Recorded) -> None:
        """The files have this run, with these trials and their pods, and nothing else."""
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
        """The trial has ended, and is kept whatever happens to this process."""
        # In this order: a trial whose row is there has all its pods.
        _append(self._folder / PODS, pods)
        _append(self._folder / TRIALS, [trial])


def _encoded(run: Run) -> bytes:
    return msgspec.json.format(msgspec.json.encode(run), indent=2) + b"\n"


def _rows(path: Path, kind: type[_Row]) -> list[_Row]:
    # What follows the last end of line was being written when its writer ended.
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
