"""Tables: objects as rows of cells, which is how kubectl asks for what it prints (meta.k8s.io/v1 Table).

Pure: `now` is given. What stands in the cells is said in `built_in_rows`, `pod_row` and `custom_columns`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from extender.sim.apiserver.ages import Column
from extender.sim.apiserver.built_in_rows import BARE, PRINTERS, Cells
from extender.sim.apiserver.custom_columns import custom_cells, custom_columns
from extender.sim.apiserver.pod_row import pod_row_conditions
from extender.sim.kinds import Json, Kind


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

    `include_object`: the query parameter includeObject (Metadata, Object or None). `headers`: False for all but the
    first table of a watch, which has the columns once.
    """
    columns, cells = _printer(kind)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {name: value for name, value in list_meta.items() if value not in ("", None)},
        "columnDefinitions": columns if headers else None,
        "rows": [_row(kind, item, cells(item, now), include_object) for item in items],
    }


def _row(kind: Kind, item: Json, cells: list[Any], include_object: str) -> Json:
    row: Json = {"cells": cells}
    if kind.plural == "pods" and (conditions := pod_row_conditions(item)):
        row["conditions"] = conditions
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


@lru_cache(maxsize=256)
def _printer(kind: Kind) -> tuple[list[Column], Cells]:
    if kind.is_custom:
        return custom_columns(kind), custom_cells(kind)
    return PRINTERS.get((kind.group, kind.plural), BARE)
