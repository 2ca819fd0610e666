"""`escher gang`: the gangs of a namespace, and how far each is placed."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table

from extender.cli.common.api import Api, Json, Namespace, connected, out, print_json
from extender.cli.common.terminal import add_row
from extender.cli.sweep import sweep

app = typer.Typer(help="Gangs: pods that are placed all or none.", no_args_is_help=True)
app.command("sweep", deprecated=True, help="The old name of `escher cleanup gangs`, until version 0.4.")(sweep)

_PLACED = ("bound", "finished")


@app.command("list", epilog="Example: escher gang list --namespace team-a")
@connected
def list_(*, namespace: Namespace = "default", service: Api, as_json: Json = False) -> None:
    """Show the gangs of a namespace."""
    items = service.every("namespaces", namespace, "gangs")
    if as_json:
        print_json({"items": items})
        return
    if not items:
        out.print(f"namespace {namespace} has no gangs")
        return
    table = Table("gang", "phase", "quorum", "members", "placed", "why it waits", box=None, pad_edge=False)
    for item in items:
        add_row(
            table,
            item["name"],
            item["phase"],
            str(item["quorum"]),
            str(len(item["members"])),
            str(sum(member["phase"] in _PLACED for member in item["members"])),
            item["reason"],
        )
    out.print(table)


@app.command(epilog="Example: escher gang get train --namespace team-a")
@connected
def get(
    *,
    name: Annotated[str, typer.Argument(help="Name of the gang.")],
    namespace: Namespace = "default",
    service: Api,
    as_json: Json = False,
) -> None:
    """Show one gang: its phase, quorum, members and their nodes."""
    gang: dict[str, Any] = service.call("GET", "namespaces", namespace, "gangs", name)
    if as_json:
        print_json(gang)
        return
    out.print(f"gang {gang['namespace']}/{gang['name']}: {gang['phase']}, quorum {gang['quorum']}")
    if gang["reason"]:
        out.print(gang["reason"])
    if gang["deadline"]:
        out.print(f"its reservation is held until {gang['deadline']}")
    table = Table("member", "phase", "node", box=None, pad_edge=False)
    for member in gang["members"]:
        add_row(table, member["name"], member["phase"], member["node"] or "")
    out.print(table)
