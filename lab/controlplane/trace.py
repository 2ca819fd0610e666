"""Reads Alibaba's GPU cluster trace v2023: nodes and pods as CSV.

The columns are those of `openb_node_list_*.csv` and `openb_pod_list_*.csv`, published in alibaba/clusterdata (folder
cluster-trace-gpu-v2023) for "Beware of Fragmentation" (USENIX ATC 2023). This project ships only the reader.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from extender.shipped.errors import WrongUse

_NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_POD_COLUMNS = (
    *("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos", "pod_phase"),
    *("creation_time", "deletion_time", "scheduled_time"),
)


class TraceError(WrongUse):
    """The file has another format; the text has the file, the line and the wrong content."""


@dataclass(frozen=True)
class TraceNode:
    """One machine: milli-CPUs, MiB, whole GPUs, and the GPU model or an empty string."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str


@dataclass(frozen=True)
class TracePod:
    """One task; times in seconds since the trace began.

    `gpu_milli` is the share that it wants of each of its `gpus` (1000: a whole GPU). `gpu_models`, if not empty, are
    the models that it can use. `scheduled` is None if it was never placed, `deleted` if it never ended.
    """

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int
    gpu_models: tuple[str, ...]
    qos: str
    phase: str
    created: int
    deleted: int | None
    scheduled: int | None


def read_nodes(path: Path, *, limit: int | None = None) -> list[TraceNode]:
    """The nodes in the file's order; `limit`: a sample of the whole file, to have all kinds.

    Raises TraceError, naming the line that is wrong.
    """
    nodes: list[TraceNode] = []
    for line in _lines(path, _NODE_COLUMNS):
        nodes.append(
            TraceNode(
                name=line.text("sn"),
                cpu_milli=line.whole("cpu_milli"),
                memory_mib=line.whole("memory_mib"),
                gpus=line.whole("gpu"),
                model=line.fields["model"],
            )
        )
    if limit is None or limit >= len(nodes):
        return nodes
    return [nodes[number * len(nodes) // limit] for number in range(limit)]


def read_pods(path: Path, *, limit: int | None = None) -> list[TracePod]:
    """The first `limit` tasks of the file. Raises TraceError, naming the line that is wrong."""
    pods: list[TracePod] = []
    for line in _lines(path, _POD_COLUMNS):
        if limit is not None and len(pods) >= limit:
            break
        pods.append(
            TracePod(
                name=line.text("name"),
                cpu_milli=line.whole("cpu_milli"),
                memory_mib=line.whole("memory_mib"),
                gpus=line.whole("num_gpu"),
                gpu_milli=line.whole("gpu_milli"),
                gpu_models=tuple(model for model in line.fields["gpu_spec"].split("|") if model),
                qos=line.fields["qos"],
                phase=line.fields["pod_phase"],
                created=line.whole("creation_time"),
                deleted=line.whole_or_none("deletion_time"),
                scheduled=line.whole_or_none("scheduled_time"),
            )
        )
    return pods


@dataclass(frozen=True)
class _Line:
    where: str
    fields: dict[str, str]

    def text(self, column: str) -> str:
        if not self.fields[column]:
            raise TraceError(f"{self.where}: {column} is empty")
        return self.fields[column]

    def whole(self, column: str) -> int:
        text = self.fields[column]
        # pandas wrote some published versions: a column with gaps has 1.0 where 1 is meant.
        number = text.removesuffix(".0")
        if not (number.isascii() and number.isdigit()):
            raise TraceError(f"{self.where}: {column} should be a whole number >= 0, found {text!r}")
        return int(number)

    def whole_or_none(self, column: str) -> int | None:
        return self.whole(column) if self.fields[column] else None


def _lines(path: Path, columns: tuple[str, ...]) -> Iterator[_Line]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.DictReader(file)
            missing = [column for column in columns if column not in (rows.fieldnames or [])]
            if missing:
                raise TraceError(f"{path}: column {missing[0]} is missing; expected {','.join(columns)}")
            for row in rows:
                where = f"{path}, line {rows.line_num}"
                if None in row or None in row.values():
                    raise TraceError(f"{where}: expected {len(rows.fieldnames or [])} fields")
                yield _Line(where, {column: row[column].strip() for column in columns})
    except OSError as error:
        raise TraceError(f"cannot read the trace {path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"{path} is not a CSV file: {error}") from error
