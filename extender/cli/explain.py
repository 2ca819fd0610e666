"""`escher explain`: why a pod or a gang waits, with numbers, and what would help."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Annotated, Any

import typer
from rich.table import Table

from extender.cli.api import (
    DEFAULT_URL,
    Api,
    Json,
    Namespace,
    TlsCa,
    TlsCertificate,
    TlsKey,
    Url,
    add_row,
    api,
    out,
    print_json,
)

app = typer.Typer(help="Why something waits, with numbers, and what would help.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Its name.")]


@app.command(epilog="Example: escher explain pod trainer-0 --namespace team-a")
def pod(
    name: Name,
    namespace: Namespace = "default",
    url: Url = DEFAULT_URL,
    tls_ca: TlsCa = None,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    as_json: Json = False,
) -> None:
    """Say why a pod waits."""
    _explain("pods", name, namespace, api(url, tls_ca, tls_certificate, tls_key), as_json)


@app.command(epilog="Example: escher explain gang train --namespace team-a")
def gang(
    name: Name,
    namespace: Namespace = "default",
    url: Url = DEFAULT_URL,
    tls_ca: TlsCa = None,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    as_json: Json = False,
) -> None:
    """Say why a gang waits."""
    _explain("gangs", name, namespace, api(url, tls_ca, tls_certificate, tls_key), as_json)


def _explain(kind: str, name: str, namespace: str, connected: AbstractContextManager[Api], as_json: bool) -> None:
    with connected as service:
        told: dict[str, Any] = service.call("GET", "namespaces", namespace, kind, name, "explain")
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
