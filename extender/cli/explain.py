"""`escher explain`: why a pod or a gang waits, with numbers, and what would help."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table

from extender.cli.api import Api, Json, Namespace, add_row, connected, out, print_json

app = typer.Typer(help="Why something waits, with numbers, and what would help.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Its name.")]


@app.command(epilog="Example: escher explain pod trainer-0 --namespace team-a")
@connected
def pod(
    *,
    name: Name,
    namespace: Namespace = "default",
    service: Api,
    as_json: Json = False,
) -> None:
    """Say why a pod waits. Of an embedded cluster also what the pod asks for and it does not heed."""
    told = _asked("pods", name, namespace, service)
    # On demand: of services elsewhere, and of gangs, there is no such thing to tell.
    from extender.controlplane import unheeded

    told["unheeded"] = unheeded.of_pod(service.address, namespace, name)
    _show(told, as_json)


@app.command(epilog="Example: escher explain gang train --namespace team-a")
@connected
def gang(
    *,
    name: Name,
    namespace: Namespace = "default",
    service: Api,
    as_json: Json = False,
) -> None:
    """Say why a gang waits."""
    _show(_asked("gangs", name, namespace, service), as_json)


def _asked(kind: str, name: str, namespace: str, service: Api) -> dict[str, Any]:
    told: dict[str, Any] = service.call("GET", "namespaces", namespace, kind, name, "explain")
    return told


def _show(told: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(told)
        return
    out.print(f"{told['subject']} {told['summary']}", markup=False)
    if told["groups"]:
        table = Table("nodes", "rule", "why", "such as", box=None, pad_edge=False)
        for group in told["groups"]:
            add_row(table, str(group["count"]), group["rule"], group["detail"], ", ".join(group["examples"]))
        out.print()
        out.print(table)
    if told["remedies"]:
        out.print("\nwhat would help:")
        for remedy in told["remedies"]:
            out.print(f"  - {remedy}", markup=False)
    for note in told.get("unheeded", ()):
        out.print(f"\n{note}", markup=False)
