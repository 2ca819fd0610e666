"""`escher state`: what each node has, what of it is available, and who holds the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.table import Table

from extender.cli.api import Api, Json, add_row, connected, out, print_json

HELP = """Show capacity and what is available of every resource on every node, and who holds ephemeral ones.

Example: escher state --namespace team-a
"""

_BYTES = ("memory", "ephemeral-storage")


@connected
def state(
    *,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Only its ephemeral resources, and holders in it.")
    ] = None,
    node: Annotated[str | None, typer.Option(help="Only this node.")] = None,
    resource: Annotated[str | None, typer.Option(help="Only this one, e.g. escher.dev/team-a.data1.")] = None,
    service: Api,
    as_json: Json = False,
) -> None:
    asked = {"namespace": namespace, "node": node, "resource": resource}
    items = service.every("cluster-state", params=asked)
    if as_json:
        print_json({"items": items})
        return
    table = Table("node", "resource", box=None, pad_edge=False)
    table.add_column("capacity", justify="right")
    table.add_column("available", justify="right")
    table.add_column("held by")
    for item in items:
        for line in _lines(item):
            add_row(table, *line)
    if table.row_count:
        out.print(table)
    else:
        out.print("no node has anything of what was asked for", markup=False)


def _lines(item: dict[str, Any]) -> Iterator[tuple[str, str, str, str, str]]:
    named = item["node"]
    for resource, free in item["available"].items():
        capacity = _shown(resource, item["capacity"].get(resource, 0))
        yield named, resource, capacity, _shown(resource, free), _holders(item, resource)
        named = ""


def _holders(item: dict[str, Any], resource: str) -> str:
    if "/" not in resource:
        return ""
    held = [each for each in item["holders"] if each["units"].get(resource)]
    named = [f"{each['pod'] or each['gang'] or each['holder']} ({each['units'][resource]})" for each in held[:3]]
    return ", ".join(named) + (f" and {len(held) - 3} more" if len(held) > 3 else "")


def _shown(resource: str, number: float) -> str:
    return f"{number / 2**30:.1f} GiB" if resource in _BYTES else f"{number:g}"
