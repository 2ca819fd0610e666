"""Columns of custom resources: additionalPrinterColumns, with the JSONPaths that Kubernetes allows.

A value whose type is not its column's is left out, as in kube-apiserver. A kind without columns shows the age.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from kubesim.apiserver.representation.ages import NAME, Column, column, since
from kubesim.apiserver.representation.built_in_rows import Cells
from kubesim.kinds import Json, Kind


def custom_columns(kind: Kind) -> list[Column]:
    if not kind.columns:
        return [NAME, column("Age", "When the object was created.", of_type="date")]
    return [NAME] + [
        {
            "name": each["name"],
            "type": each["type"],
            "format": each.get("format") or "",
            "description": each.get("description") or f"What is at {each['jsonPath']} of the object.",
            "priority": each.get("priority") or 0,
        }
        for each in kind.columns
    ]


def custom_cells(kind: Kind) -> Cells:
    default = ({"type": "date", "jsonPath": ".metadata.creationTimestamp"},)
    ways = [(_steps(each["jsonPath"]), each["type"]) for each in kind.columns or default]

    def cells(item: Json, now: float) -> list[Any]:
        return [item["metadata"].get("name", "")] + [
            _cell(next(_find(item, way), None), of_type, now) for way, of_type in ways
        ]

    return cells


_STEP = re.compile(
    r"""\.(?P<key>(?:\\.|[^.\[\\])+)
    | \[\s*(?:'(?P<quoted>[^']*)' | (?P<index>-?\d+) | (?P<all>\*)
      | \?\(\s*@\.(?P<field>[^=\s]+)\s*==\s*(?P<value>"[^"]*"|'[^']*'|[^)\s]+)\s*\))\s*\]""",
    re.VERBOSE,
)
Step = Callable[[Any], Iterable[Any]]


def _steps(path: str) -> list[Step]:
    """Parses a JSONPath of keys, indices, [*] and [?(@.key=="value")]. Raises ValueError."""
    steps: list[Step] = []
    at = 0
    while at < len(path):
        if (found := _STEP.match(path, at)) is None:
            raise ValueError(f"this JSONPath is not understood from character {at} on: {path}")
        at = found.end()
        steps.append(_step(**found.groupdict()))
    return steps


def _step(
    key: str | None, quoted: str | None, index: str | None, all: str | None, field: str | None, value: str | None
) -> Step:
    if field is not None and value is not None:
        wanted = value[1:-1] if value[0] in "\"'" else json.loads(value)
        way = _steps(f".{field}")
        return lambda it: [each for each in it if wanted in _find(each, way)] if isinstance(it, list) else []
    if all is not None:
        return lambda it: it if isinstance(it, list) else it.values() if isinstance(it, dict) else []
    if index is not None:
        which = int(index)
        return lambda it: [it[which]] if isinstance(it, list) and -len(it) <= which < len(it) else []
    name = quoted if key is None else re.sub(r"\\(.)", r"\1", key)
    return lambda it: [it[name]] if isinstance(it, dict) and name in it else []


def _find(value: Any, steps: Sequence[Step]) -> Iterator[Any]:
    if not steps:
        yield value
        return
    for each in steps[0](value):
        yield from _find(each, steps[1:])


def _cell(value: Any, of_type: str, now: float) -> Any:
    if value is None:
        return None
    if of_type == "string":
        return _text(value)
    if isinstance(value, bool):
        return value if of_type == "boolean" else None
    if isinstance(value, int | float):
        return {"integer": int, "number": float}[of_type](value) if of_type in ("integer", "number") else None
    if isinstance(value, str) and of_type == "date":
        try:
            return since(value, now)
        except ValueError:
            return "<invalid>"
    return None


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
