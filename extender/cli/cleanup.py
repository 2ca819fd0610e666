"""`escher cleanup`: removes what Escher has left in a cluster after the service is gone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from extender.cli.sweep import sweep
from extender.cli.terminal import echo

if TYPE_CHECKING:
    from extender.adapters.kubernetes.writers.traces import Traces
    from extender.kube.requests import Requests

HELP = """Remove what Escher has left in a cluster, once the service is gone from it.

Example: escher cleanup --kubeconfig ~/.kube/config

EphemeralResources, their units on nodes, the gate of gangs on pods that wait, and annotations that the service wrote.
Pods that run go on, and keep what they hold until they end. EscherPolicies, and what people wrote on their pods, stay.
Without --yes it is only told what there is. While a Deployment of the service is there nothing is removed: what it has
made cannot be told from what another has left. The chart's uninstallation runs this.
"""

ROUNDS, PAUSE_SECONDS = 10, 3.0
"""The most rounds, and the seconds between them: a service that is ending may still write."""


class Installed(Exception):
    """The service is installed; `str()` names its Deployments."""


app = typer.Typer(help=HELP, invoke_without_command=True)
app.command("gangs", epilog="Example: escher cleanup gangs --namespace team-a")(sweep)


@app.callback()
def cleanup(
    command: typer.Context,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="The cluster; in a pod its service account, else ~/.kube/config.")
    ] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Remove it, and do not only tell what there is.")] = False,
    unless_installed: Annotated[
        bool,
        typer.Option("--unless-installed", help="Where the service is installed, remove nothing, and call that well."),
    ] = False,
) -> None:
    if command.invoked_subcommand is not None:
        if kubeconfig or context or yes or unless_installed:
            echo("escher cleanup gangs: give its options after the word gangs", err=True)
            raise typer.Exit(2)
        return
    import asyncio

    from extender.adapters.kubernetes.writers import traces
    from extender.kube.connection import Connection
    from extender.kube.credentials import BadConfiguration, Credentials, default_loader
    from extender.kube.errors import Refused, Unavailable

    async def run() -> Traces:
        credentials = await Credentials.load(default_loader(kubeconfig, context))
        async with Connection(credentials) as connection:
            if not yes:
                echo(f"there is: {await traces.found(connection)}")
                return traces.Traces()
            await nobody_installed(connection)
            return await removed(connection, asyncio.sleep)

    try:
        left = asyncio.run(run())
    except Installed as error:
        echo(f"escher cleanup: {error}", err=True)
        raise typer.Exit(0 if unless_installed else 1) from None
    except (BadConfiguration, Refused, Unavailable) as error:
        echo(f"escher cleanup: {error}", err=True)
        raise typer.Exit(1) from None
    if left:
        echo(f"escher cleanup: comes back, or is kept by finalizers: {left}; does the service still run?", err=True)
        raise typer.Exit(1)


async def nobody_installed(requests: Requests) -> None:
    """Raises Installed if a Deployment of the service exists. Raises Unavailable, Refused."""
    from extender.adapters.kubernetes.writers import traces

    if there := await traces.services(requests):
        raise Installed(
            f"nothing is removed, for the service is installed: Deployment {', '.join(there)}. "
            "Uninstall it, or scale it to 0, before what is left of it is removed"
        )


async def removed(requests: Requests, sleep: Callable[[float], Awaitable[object]]) -> Traces:
    """Removes all traces; returns those left after the last round, empty on success."""
    from extender.adapters.kubernetes.writers import traces

    for _ in range(ROUNDS):
        left = await traces.found(requests)
        echo(f"found: {left}")
        if not left:
            break
        await traces.remove(requests, left)
        await sleep(PAUSE_SECONDS)
    else:
        left = await traces.found(requests)
    return left
