"""`escher resource`: set, list, delete ephemeral resources through the management API."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table

from extender.cli.common.api import Api, DryRun, Json, Namespace, connected, out, own_node, print_json
from extender.cli.common.terminal import add_row

app = typer.Typer(
    help="Ephemeral resources: units that pods request, created on nodes at run time.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(help="Name of the resource; pods request escher.dev/NAMESPACE.NAME.")]
Shared = Annotated[bool, typer.Option("--shared", help="For every namespace: pods request escher.dev/NAME.")]
IfVersion = Annotated[str | None, typer.Option(help="Only if the resource is at this version.")]


@app.command("set", epilog="Example: escher resource set data1 4 --node node-3 --ttl 600")
@connected
def set_(
    *,
    name: Name,
    capacity: Annotated[int, typer.Argument(min=0, help="Units on each node, absolute; 0 removes it.")],
    node: Annotated[str | None, typer.Option(help="On this node.")] = None,
    everywhere: Annotated[bool, typer.Option("--everywhere", help="On every node.")] = False,
    available: Annotated[
        list[str] | None, typer.Option(metavar="RESOURCE=AMOUNT", help="On nodes that have this much available.")
    ] = None,
    label: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="On nodes with this label.")] = None,
    num_nodes: Annotated[int | None, typer.Option(min=1, help="On at most this many nodes.")] = None,
    ttl: Annotated[float | None, typer.Option(min=0.001, help="Seconds until it is removed.")] = None,
    owner: Annotated[
        str | None, typer.Option(metavar="POD/UID", help="The pod whose end removes it: its name and UID.")
    ] = None,
    shared: Shared = False,
    export_to: Annotated[
        list[str] | None,
        typer.Option(metavar="NAMESPACE", help="Let pods of this namespace request it too; '' for none."),
    ] = None,
    if_version: IfVersion = None,
    dry_run: DryRun = False,
    namespace: Namespace = "default",
    service: Api,
    as_json: Json = False,
) -> None:
    """Set the units of a resource on the chosen nodes; by default on this pod's own node."""
    body: dict[str, Any] = {
        "capacity": capacity,
        "node_spec": _node_spec(node, everywhere, available, label),
        "num_nodes": num_nodes,
        "ttl_seconds": ttl,
        "owner": _owner(owner),
        "shared": shared,
        **({"export_to": [each for each in export_to if each]} if export_to else {}),
    }
    found = service.call(
        "PUT",
        "namespaces",
        namespace,
        "resources",
        name,
        body=body,
        params=_dry(dry_run),
        headers={**own_node(), "If-Match": if_version},
    )
    if as_json:
        print_json(found)
        return
    units = ", ".join(f"{where} {number}" for where, number in sorted(found["nodes"].items()))
    would = "would be " if dry_run else ""
    out.print(f"{found['key']} {would}on {units}" if units else f"{found['key']} {would}on no node")


@app.command("list", epilog="Example: escher resource list --namespace team-a")
@connected
def list_(
    *,
    namespace: Namespace = "default",
    service: Api,
    as_json: Json = False,
) -> None:
    """Show the ephemeral resources of a namespace."""
    items = service.every("namespaces", namespace, "resources")
    if as_json:
        print_json({"items": items})
        return
    if not items:
        out.print(f"namespace {namespace} has no ephemeral resources")
        return
    table = Table("resource", "nodes", "units", "expires", "owner", "problem", box=None, pad_edge=False)
    for item in items:
        add_row(
            table,
            item["key"],
            _few(sorted(item["nodes"])),
            str(sum(item["nodes"].values())),
            item["expires_at"] or "never",
            item["owner"]["name"] if item["owner"] else "",
            item["problem"],
        )
    out.print(table)


@app.command(epilog="Example: escher resource delete data1 --namespace team-a")
@connected
def delete(
    *,
    name: Name,
    shared: Shared = False,
    if_version: IfVersion = None,
    dry_run: DryRun = False,
    namespace: Namespace = "default",
    service: Api,
) -> None:
    """Remove a resource from every node; holders keep their units. Exit code 0 also if there is none."""
    left = service.call(
        "DELETE",
        "namespaces",
        namespace,
        "resources",
        name,
        params={**_dry(dry_run), "shared": "true" if shared else None},
        headers={"If-Match": if_version},
    )
    if left is not None:
        by = ", ".join(left["finalizers"])
        out.print(f"{name} {'would be' if dry_run else 'is'} on no node, and held by finalizers: {by}")
        return
    out.print(f"{name} {'would be' if dry_run else 'is'} gone")


def _node_spec(
    node: str | None, everywhere: bool, available: list[str] | None, label: list[str] | None
) -> str | dict[str, Any] | None:
    given = [
        option
        for option, value in (
            ("--node", node),
            ("--everywhere", everywhere),
            ("--available", available),
            ("--label", label),
        )
        if value
    ]
    if len(given) > 1:
        raise typer.BadParameter(f"{' and '.join(given)} cannot be combined; choose nodes in one way")
    if label:
        return {"labels": dict(_pair("--label", text) for text in label)}
    if available:
        return dict(_pair("--available", text) for text in available)
    return {} if everywhere else node


def _owner(text: str | None) -> dict[str, str] | None:
    if text is None:
        return None
    name, slash, uid = text.partition("/")
    if not (name and slash and uid):
        raise typer.BadParameter(f"--owner is {text!r}; write the pod's name and UID as POD/UID")
    return {"name": name, "uid": uid}


def _pair(option: str, text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise typer.BadParameter(f"{option} is {text!r}; write it as KEY=VALUE")
    return key, value


def _dry(dry_run: bool) -> dict[str, str | None]:
    return {"dryRun": "All" if dry_run else None}


def _few(names: list[str], most: int = 4) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
