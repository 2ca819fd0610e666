"""`escher policy`: the EscherPolicy objects of a namespace, applied from files as kubectl does.

A file spells a policy as the custom resource does. This module reads the file; the service validates the policy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, NoReturn

import typer
from rich.table import Table

from extender.cli.common.api import Api, DryRun, Json, Namespace, connected, fail, out, print_json
from extender.cli.common.documents import read_documents
from extender.cli.common.terminal import add_row

app = typer.Typer(help="Policies: where pods may run, where best, and in which order they wait.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Name of the policy.")]
IfVersion = Annotated[str | None, typer.Option(help="Only if the policy is at this version.")]
File = Annotated[
    str,
    typer.Option("--filename", "-f", metavar="FILE", help="YAML or JSON with EscherPolicy objects; - for stdin."),
]

_API, _KIND = "escher.dev/v1alpha1", "EscherPolicy"
_SELECTOR = {"matchLabels": "match_labels", "matchExpressions": "match_expressions"}


@app.command("list", epilog="Example: escher policy list --namespace team-a")
@connected
def list_(
    *,
    namespace: Namespace = "default",
    service: Api,
    as_json: Json = False,
) -> None:
    """Show the policies of a namespace, and whether they are in force."""
    items = service.every("namespaces", namespace, "policies")
    if as_json:
        print_json({"items": items})
        return
    if not items:
        out.print(f"namespace {namespace} has no policies")
        return
    table = Table("policy", "type", "in force", "pods", "why", box=None, pad_edge=False)
    for item in items:
        pods = "" if item["pods"] is None else str(item["pods"])
        add_row(table, item["name"], item["type"] or "", _standing(item), pods, item["message"])
    out.print(table)


@app.command(epilog="Example: escher policy get spread --namespace team-a")
@connected
def get(
    *,
    name: Name,
    namespace: Namespace = "default",
    service: Api,
    as_json: Json = False,
) -> None:
    """Show one policy: what of it is in force, and why."""
    policy: dict[str, Any] = service.call("GET", "namespaces", namespace, "policies", name)
    if as_json:
        print_json(policy)
        return
    said = (
        f"{policy['namespace']}/{policy['name']}: {policy['type'] or 'not understood'}, in force: {_standing(policy)}"
    )
    out.print(said)
    out.print(policy["message"])
    if (in_force := policy["in_force"]) is None:
        return
    table = Table("parameter", "in force", box=None, pad_edge=False)
    for parameter, value in in_force["parameters"].items():
        add_row(table, parameter, _shown(value))
    add_row(table, "pods", _selected(in_force["selector"]))
    out.print(table)


@app.command(epilog="Example: escher policy apply -f spread.yaml --namespace team-a")
@connected
def apply(
    *,
    filename: File,
    if_version: IfVersion = None,
    dry_run: DryRun = False,
    namespace: Namespace = "default",
    service: Api,
    as_json: Json = False,
) -> None:
    """Create or replace the policies of a file; an object's own namespace overrides --namespace."""
    written = _read(filename, namespace)
    if if_version is not None and len(written) > 1:
        fail(f"--if-version is for one policy, but {filename} has {len(written)}; apply them one by one", code=2)
    items = [
        service.call(
            "PUT",
            "namespaces",
            each.namespace,
            "policies",
            each.name,
            body=each.body,
            params={"dryRun": "All" if dry_run else None},
            headers={"If-Match": if_version},
        )
        for each in written
    ]
    if as_json:
        print_json({"items": items})
        return
    for item in items:
        would = "would be applied" if dry_run else "is applied"
        out.print(f"{item['namespace']}/{item['name']} {would}: {item['message']}")


@app.command(epilog="Example: escher policy validate -f spread.yaml")
@connected
def validate(
    *,
    filename: File,
    namespace: Namespace = "default",
    service: Api,
    as_json: Json = False,
) -> None:
    """Say whether the policies of a file would be accepted, and their status then; change nothing."""
    items = [
        service.call("POST", "namespaces", each.namespace, "policies:validate", body={**each.body, "name": each.name})
        for each in _read(filename, namespace)
    ]
    if as_json:
        print_json({"items": items})
        return
    for item in items:
        out.print(f"{item['namespace']}/{item['name']} is valid: {item['message']}")


@app.command(epilog="Example: escher policy delete spread --namespace team-a")
@connected
def delete(
    *,
    name: Name,
    if_version: IfVersion = None,
    dry_run: DryRun = False,
    namespace: Namespace = "default",
    service: Api,
) -> None:
    """Delete a policy; pods stay where they are. Exit code 0 also if there is none."""
    left = service.call(
        "DELETE",
        "namespaces",
        namespace,
        "policies",
        name,
        params={"dryRun": "All" if dry_run else None},
        headers={"If-Match": if_version},
    )
    if left is not None:
        by = ", ".join(left["finalizers"])
        out.print(f"{name} {'would be' if dry_run else 'is'} not in force, and held by finalizers: {by}")
        return
    out.print(f"{name} {'would be' if dry_run else 'is'} gone")


@app.command(epilog="Example: escher policy ask slots --task train-0 --need cpu=2 --namespace team-a")
@connected
def ask(
    *,
    name: Name,
    task: Annotated[str, typer.Option(help="Name of the task that needs a pod.")],
    group: Annotated[str, typer.Option(help="Group of the task; for a policy of type shares, its user.")] = "",
    need: Annotated[
        list[str] | None, typer.Option(metavar="RESOURCE=QUANTITY", help="Other requests of its pod; repeatable.")
    ] = None,
    dry_run: DryRun = False,
    namespace: Namespace = "default",
    service: Api,
    as_json: Json = False,
) -> None:
    """Ask a policy what a task's pod must contain; asking again for the same task changes nothing."""
    said: dict[str, Any] = {"name": task, "group": group}
    if need:
        said["needs"] = dict(_of_pair(each) for each in need)
    answer: dict[str, Any] = service.call(
        "POST",
        "namespaces",
        namespace,
        "policies",
        f"{name}:ask",
        body={"task": said},
        params={"dryRun": "All" if dry_run else None},
    )
    if as_json:
        print_json(answer)
        return
    table = Table("in the pod", "says", box=None, pad_edge=False)
    add_row(table, "spec.schedulerName", answer["schedulerName"])
    for where, key in (
        ("metadata.labels", "labels"),
        ("metadata.annotations", "annotations"),
        ("spec.containers[0].resources.limits", "requirement"),
    ):
        for each, value in answer[key].items():
            add_row(table, where, f"{each}: {json.dumps(value)}")
    out.print(table)
    for each in answer["effects"]:
        out.print(f"done: {each}")
    for each in answer["notices"]:
        out.print(f"in the way: {each}")


def _of_pair(text: str) -> tuple[str, str]:
    resource, equals, quantity = text.partition("=")
    if not (resource and equals and quantity):
        fail(f"--need is {text!r}; write RESOURCE=QUANTITY, such as cpu=2", code=2)
    return resource, quantity


@app.command(epilog="Example: escher policy types --json")
@connected
def types(
    *,
    service: Api,
    as_json: Json = False,
) -> None:
    """Show the types of policy, and the parameters of each."""
    items = service.every("policy-types")
    if as_json:
        print_json({"items": items})
        return
    table = Table("type", "parameters", "what it does", box=None, pad_edge=False)
    for item in items:
        names = (_camel(each) for each in item["parameters"]["properties"])
        add_row(table, item["name"], ", ".join(names), item["summary"])
    out.print(table)


# -- files -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Written:
    """A policy of a file. `body`: as the management API takes it."""

    namespace: str
    name: str
    body: dict[str, Any]


def _read(filename: str, namespace: str) -> list[_Written]:
    """The policies of a file. Exits on errors."""
    documents = read_documents("--filename", filename)
    found = [_policy(filename, each, namespace) for each in _objects(documents)]
    if not found:
        fail(f"{filename} has no {_KIND}", code=2)
    return found


def _objects(documents: list[Any]) -> Iterator[Any]:
    for each in documents:
        if isinstance(each, dict) and each.get("kind") == "List" and isinstance(each.get("items"), list):
            yield from each["items"]
        elif each is not None:
            yield each


def _policy(filename: str, said: Any, namespace: str) -> _Written:
    where = f"{filename}: "
    if not isinstance(said, dict) or (said.get("apiVersion"), said.get("kind")) != (_API, _KIND):
        fail(f"{where}an object is not an {_KIND}; write apiVersion: {_API} and kind: {_KIND}", code=2)
    metadata, spec = said.get("metadata"), said.get("spec")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(name, str) or not name:
        fail(f"{where}a policy has no metadata.name", code=2)
    if not isinstance(spec, dict):
        fail(f"{where}policy {name} has no spec", code=2)
    body = dict(spec)
    if isinstance(parameters := spec.get("parameters"), dict):
        body["parameters"] = {_snake(where, f"spec.parameters.{key}", key): each for key, each in parameters.items()}
    if isinstance(selector := spec.get("selector"), dict):
        body["selector"] = {_of_selector(where, key): each for key, each in selector.items()}
    return _Written(str(metadata.get("namespace") or namespace), name, body)


def _snake(where: str, field: str, key: Any) -> str:
    if not isinstance(key, str) or "_" in key:
        _unknown(where, field, _camel(str(key)))
    return re.sub("[A-Z]", lambda letter: "_" + letter.group().lower(), key)


def _of_selector(where: str, key: Any) -> str:
    if key not in _SELECTOR:
        _unknown(where, f"spec.selector.{key}", " or ".join(_SELECTOR))
    return _SELECTOR[key]


def _unknown(where: str, field: str, instead: str) -> NoReturn:
    fail(f"{where}{field} is not known; write {instead}", code=2)


# -- what is shown -----------------------------------------------------------------------------------------------


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(each.capitalize() for each in others)


def _standing(policy: dict[str, Any]) -> str:
    if policy["ready"]:
        return "yes"
    return "no" if policy["in_force"] is None else "its previous version"


def _selected(selector: list[dict[str, Any]] | None) -> str:
    if selector is None:
        return "those that name it"
    said = [f"{each['key']} {each['operator']} {', '.join(each['values'])}".strip() for each in selector]
    return f"those that name it, and those of {'; '.join(said)}" if said else "all pods of the namespace"


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(json.dumps(each) if isinstance(each, dict) else str(each) for each in value)
    return str(value).lower() if isinstance(value, bool) else str(value)
