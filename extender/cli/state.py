"""`escher state`: each node's capacity, what of it is available, and the holders of the rest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from extender.cli.common import dumped
from extender.cli.common.api import Api, Json, connected, fail, out, print_json
from extender.cli.common.terminal import add_row

HELP = """Show capacity and available amount of every resource on every node, and the holders of ephemeral ones.

With --dump it writes the whole state of the service, of all namespaces, to FILE (or standard output), compressed
if its name ends with .gz. `escher what-if --state FILE` and `escher explain pod|gang NAME --state FILE` read it, on
any machine. It has no secrets: of pods and nodes only what decides placement, including labels.

Example: escher state --namespace team-a

Example: escher state --dump state.json.gz
"""

_BYTES = ("memory", "ephemeral-storage")


@connected
def state(
    *,
    dump: Annotated[bool, typer.Option("--dump", help="Write the whole state to FILE, for use elsewhere.")] = False,
    file: Annotated[Path | None, typer.Argument(help="With --dump: the file; - is standard output.")] = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Only its ephemeral resources, and holders in it.")
    ] = None,
    node: Annotated[str | None, typer.Option(help="Only this node.")] = None,
    resource: Annotated[str | None, typer.Option(help="Only this one, e.g. escher.dev/team-a.data1.")] = None,
    service: Api,
    as_json: Json = False,
) -> None:
    if dump and (namespace or node or resource or as_json):
        fail("--dump writes the whole state; the only other options with it are those of the service's address", code=2)
    if file is not None and not dump:
        fail(f"{file} is a file for a state dump: give --dump with it", code=2)
    if dump:
        dumped.write(file, service)
        return
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
        out.print("no node has a matching resource")


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
