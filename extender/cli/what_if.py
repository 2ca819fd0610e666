"""`escher what-if`: whether pods would fit and where; the effect of a drain. Changes nothing."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from extender.cli.common.api import Api, Json, Namespace, connected, fail, out, print_json
from extender.cli.common.documents import read_documents
from extender.cli.common.dumped import State, asked
from extender.cli.common.terminal import add_row

HELP = """Simulate new pods and gangs, and changes of nodes. Nothing changes in the cluster.

Exit code 0 if all would fit, 1 if not.

With --state it uses a state dump of a service, as of the time when that was written.

Example: escher what-if --gang train --size 64 --each cpu=4 --drain node-3

Example: escher what-if --state state.json.gz -f question.yaml
"""


@connected
def what_if(
    *,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="The question as POST /v1/what-if takes it, in YAML or JSON."),
    ] = None,
    gang: Annotated[str | None, typer.Option(help="Would a gang of this name fit?")] = None,
    size: Annotated[int, typer.Option(min=1, help="Number of its members; all are needed.")] = 1,
    each: Annotated[
        list[str] | None, typer.Option(help="RESOURCE=QUANTITY that each member requests; may be repeated.")
    ] = None,
    drain: Annotated[list[str] | None, typer.Option(help="Suppose that this node is drained; may be repeated.")] = None,
    add_like: Annotated[
        list[str] | None, typer.Option(help="Suppose one more node like this one; may be repeated.")
    ] = None,
    namespace: Namespace = "default",
    state: State = None,
    service: Api,
    as_json: Json = False,
) -> None:
    made = partial(_made, gang, size, each or [], drain or [], add_like or [], namespace)
    question = made() if file is None else _read(file)
    told: dict[str, Any] = asked(service, state).call("POST", "what-if", body=question)
    if as_json:
        print_json(told)
    else:
        _show(told)
    if not told["fits"]:
        raise typer.Exit(1)


def _made(
    gang: str | None, size: int, each: list[str], drain: list[str], add_like: list[str], namespace: str
) -> dict[str, Any]:
    if gang is None and not (drain or add_like):
        fail("there is no question: give --gang with --each, --drain, or a file with -f", code=2)
    if gang is not None and not each:
        fail("--gang needs what each member requests: give --each, such as --each cpu=4", code=2)
    changes = [{"op": "drain", "node": node} for node in drain]
    changes += [{"op": "add-nodes", "like": node} for node in add_like]
    needs = dict(_pair(text) for text in each)
    made = {"kind": "pods", "namespace": namespace, "name": gang, "count": size, "gang": True, "each": needs}
    return {"changes": changes, "question": made if gang is not None else None}


def _pair(text: str) -> tuple[str, str]:
    resource, equals, quantity = text.partition("=")
    if not (resource and equals and quantity):
        fail(f"--each is {text!r}; write RESOURCE=QUANTITY, such as cpu=4", code=2)
    return resource, quantity


def _read(file: Path) -> dict[str, Any]:
    [asked, *more] = read_documents("--file", str(file)) or [None]
    if more or not isinstance(asked, dict):
        fail(f"--file is {file}: it has no question; write for example {json.dumps(_EXAMPLE)}", code=2)
    return asked


_EXAMPLE = {"changes": [{"op": "drain", "node": "node-3"}]}


def _show(told: dict[str, Any]) -> None:
    why = told["explanation"]
    if why is not None:
        out.print(f"{why['subject']} {why['summary']}")
        for remedy in why["remedies"]:
            out.print(f"would help: {remedy}")
    elif told["fits"]:
        out.print("all would fit")
    table = Table("pod", "node", box=None, pad_edge=False)
    for place in [*told["moved"], *told["places"]]:
        add_row(table, place["pod"], place["node"] or "does not fit")
    if table.row_count:
        out.print(table)
