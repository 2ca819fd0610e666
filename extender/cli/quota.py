"""`escher quota`: a namespace's use, its limits, and the nodes and names it may touch."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from extender.cli.common.api import Api, Json, Namespace, connected, out, print_json
from extender.cli.common.terminal import add_row

HELP = """Show what a namespace uses of its quota, and which nodes and names it may use.

Example: escher quota --namespace team-a
"""

_COUNTED = ("resources", "units", "policies", "gang_places", "claims", "waiting_kinds")


@connected
def quota(*, namespace: Namespace = "default", service: Api, as_json: Json = False) -> None:
    found: dict[str, Any] = service.call("GET", "namespaces", namespace, "quota")
    if as_json:
        print_json(found)
        return
    table = Table("quota", box=None, pad_edge=False)
    for column in ("used", "limit", "waiting"):
        table.add_column(column, justify="right")
    for name in _COUNTED:
        counted = found[name]
        limit = "-" if counted["limit"] is None else str(counted["limit"])
        add_row(table, name, str(counted["used"]), limit, str(counted["waiting"]))
    out.print(table)
    domain = found["domain"]
    if domain["nodes"] is not None:
        labels = ", ".join(f"{key}={'|'.join(values)}" for key, values in domain["nodes"].items())
        out.print(f"it may use {domain['node_count']} nodes, those with {labels}")
    if domain["names"] is not None:
        out.print(f"names of its resources match {', '.join(domain['names']) or 'nothing'}")
