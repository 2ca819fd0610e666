"""`escher explain`: why a pod or a gang waits, with numbers, and what would help."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.table import Table

from extender.cli.common.api import Api, Json, Namespace, connected, out, print_json
from extender.cli.common.dumped import State, asked
from extender.cli.common.terminal import add_row

app = typer.Typer(help="Why something waits, with numbers, and what would help.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Name of the pod or gang.")]


@app.command(epilog="Example: escher explain pod trainer-0 --namespace team-a [--state state.json.gz]")
@connected
def pod(
    *,
    name: Name,
    namespace: Namespace = "default",
    state: State = None,
    service: Api,
    as_json: Json = False,
) -> None:
    """Say why a pod waits. For an embedded cluster also which fields of the pod it does not support."""
    whom = asked(service, state)
    told = _explanation("pods", name, namespace, whom)
    if state is None:
        told["unheeded"] = _unheeded(whom.address, namespace, name)
    _show(told, as_json, whom.at)


@app.command(epilog="Example: escher explain gang train --namespace team-a [--state state.json.gz]")
@connected
def gang(
    *,
    name: Name,
    namespace: Namespace = "default",
    state: State = None,
    service: Api,
    as_json: Json = False,
) -> None:
    """Say why a gang waits."""
    whom = asked(service, state)
    _show(_explanation("gangs", name, namespace, whom), as_json, whom.at)


def _explanation(kind: str, name: str, namespace: str, service: Api) -> dict[str, Any]:
    told: dict[str, Any] = service.call("GET", "namespaces", namespace, kind, name, "explain")
    return told


def show_since(told: dict[str, Any], at: datetime | None = None) -> None:
    """Shows how long it has waited in all and for this reason. `at`: the end; None: now."""
    since, reason, now = told.get("since"), told.get("reason_since"), at or datetime.now(UTC)
    if since:
        out.print(f"it has waited {_for(since, now)}" + (f", for this reason {_for(reason, now)}" if reason else ""))


def _for(since: str, now: datetime) -> str:
    began = datetime.fromisoformat(since)
    seconds = max(0, round((now - began).total_seconds()))
    parts = ((seconds // 3600, "h"), (seconds // 60 % 60, "min"), (seconds % 60, "s"))
    long = " ".join(f"{number} {unit}" for number, unit in parts if number) or "0 s"
    return f"for {long} (since {began:%Y-%m-%d %H:%M:%S} UTC)"


def show_remedies(told: dict[str, Any]) -> None:
    """Shows what would help, and whether that was tried."""
    if told["remedies"]:
        out.print()
        out.print("what would help:")
        for remedy in told["remedies"]:
            out.print(f"  - {remedy}")
        if told.get("tried"):
            out.print("each of these was tried on a copy of the cluster, and helps there")


def _show(told: dict[str, Any], as_json: bool, at: datetime | None) -> None:
    if as_json:
        print_json(told)
        return
    out.print(f"{told['subject']} {told['summary']}")
    show_since(told, at)
    if told["groups"]:
        table = Table("nodes", "rule", "why", "such as", box=None, pad_edge=False)
        for group in told["groups"]:
            add_row(table, str(group["count"]), group["rule"], group["detail"], ", ".join(group["examples"]))
        out.print()
        out.print(table)
    show_remedies(told)
    for note in told.get("unheeded", ()):
        out.print()
        out.print(note)


def _unheeded(address: str, namespace: str, name: str) -> list[str]:
    """The notes of this machine's embedded cluster on the pod's unsupported fields."""
    try:
        from lab.controlplane import unheeded
    except ModuleNotFoundError:
        # The container image has no such clusters.
        return []
    return unheeded.of_pod(address, namespace, name)
