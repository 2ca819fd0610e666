"""`escher cleanup gangs`: removes what dead applications left of gangs without an extender."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from extender.cli.common.api import Json, Namespace, out, print_json
from extender.cli.common.terminal import echo, quietly

if TYPE_CHECKING:
    from extender.core.names import GangKey


def sweep(
    namespace: Namespace = "default",
    kubeconfig: Annotated[Path | None, typer.Option(help="Default: $KUBECONFIG, else ~/.kube/config.")] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig.")] = None,
    as_json: Json = False,
) -> None:
    """Remove what dead applications have left of gangs without an extender. It calls no service.

    It takes up to half a minute, because it waits until the Leases of dead applications expire. Ghosts whose
    members still run stay; run it again when those members have ended.
    """
    import asyncio

    from extender.kube.client.credentials import BadConfiguration
    from extender.kube.errors import Refused, Unavailable

    try:
        # The result is what is left; other events are for applications' logs.
        with quietly("error"):
            swept = asyncio.run(_sweep(namespace, kubeconfig, context))
    except (BadConfiguration, Refused, Unavailable, TimeoutError) as error:
        echo(f"escher cleanup gangs: {str(error) or 'it timed out; see what is left with kubectl'}", err=True)
        raise typer.Exit(1) from None
    if as_json:
        print_json({"items": [{"namespace": gang.namespace, "gang": gang.name, "run": run} for gang, run in swept]})
        return
    for gang, run in swept:
        out.print(f"{gang}: nothing is left of run {run}, except what its members use")
    if not swept:
        out.print(f"namespace {namespace} has no leftovers")


async def _sweep(namespace: str, kubeconfig: Path | None, context: str | None) -> list[tuple[GangKey, str]]:
    from extender.adapters.kubernetes.appspace.extended_resource_gangs import ExtendedResourceGangs
    from extender.kube.client.connection import Connection
    from extender.kube.client.credentials import Credentials, from_kubeconfig

    credentials = await Credentials.load(from_kubeconfig(kubeconfig, context))
    async with Connection(credentials) as connection, ExtendedResourceGangs(connection, namespace=namespace) as gangs:
        return await gangs.collected()
