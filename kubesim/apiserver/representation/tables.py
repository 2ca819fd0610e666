"""Tables: objects as rows of cells, as kubectl requests them to print (meta.k8s.io/v1 Table).

`now` is an argument. `built_in_rows`, `pod_row` and `custom_columns` fill the cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import structlog

from kubesim.apiserver.representation.ages import Column
from kubesim.apiserver.representation.built_in_rows import BARE, PRINTERS, Cells
from kubesim.apiserver.representation.custom_columns import custom_cells, custom_columns
from kubesim.apiserver.representation.pod_row import pod_row_conditions
from kubesim.kinds import Json, Kind

_log = structlog.get_logger(__name__)


def table(
    kind: Kind,
    items: Sequence[Json],
    now: float,
    list_meta: Mapping[str, Any],
    *,
    include_object: str = "Metadata",
    headers: bool = True,
) -> Json:
    """A Table of these objects.

    `include_object`: the query parameter includeObject (Metadata, Object or None). `headers`: whether to include the
    columns; only the first table of a watch has them.
    """
    columns, _ = _printer(kind)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {name: value for name, value in list_meta.items() if value not in ("", None)},
        "columnDefinitions": columns if headers else None,
        "rows": [_row(kind, item, now, include_object) for item in items],
    }


def _row(kind: Kind, item: Json, now: float, include_object: str) -> Json:
    row = _said(kind, item, now)
    if include_object == "Object":
        row["object"] = item
    elif include_object == "None":
        row["object"] = None
    else:
        row["object"] = {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": item.get("metadata") or {},
        }
    return row


def _said(kind: Kind, item: Json, now: float) -> Json:
    """The row of the object; only its name if its fields are unreadable."""
    columns, cells = _printer(kind)
    try:
        row: Json = {"cells": cells(item, now)}
        if kind.plural == "pods" and (conditions := pod_row_conditions(item)):
            row["conditions"] = conditions
        return row
    except Exception:
        name = (item.get("metadata") or {}).get("name", "")
        _log.exception("an object cannot be shown as a row", kind=kind.name, object=name)
        return {"cells": [name, *("<unreadable>" for _ in columns[1:])]}


@lru_cache(maxsize=256)
def _printer(kind: Kind) -> tuple[list[Column], Cells]:
    if kind.is_custom:
        return custom_columns(kind), custom_cells(kind)
    return PRINTERS.get((kind.group, kind.plural), BARE)
