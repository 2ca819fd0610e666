"""`escher cleanup`: removes what Escher has left in a cluster after the service is gone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from extender.cli.common.terminal import echo
from extender.cli.sweep import sweep

if TYPE_CHECKING:
    from extender.adapters.kubernetes.writers.traces import Traces
    from extender.kube.client.requests import Requests

HELP = """Remove what Escher has left in a cluster, after the service was uninstalled.

Example: escher cleanup --kubeconfig ~/.kube/config

It removes EphemeralResources, their units on nodes, the gang gate of waiting pods, and annotations of the service.
Running pods keep running, and keep what they hold until they end. EscherPolicies and users' annotations on pods stay.
Without --yes it only lists what it finds. While a Deployment of the service exists it removes nothing, because it
cannot distinguish objects in use from leftovers. The chart's uninstallation runs this.
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
        Path | None, typer.Option(help="Default: in a pod its service account, else ~/.kube/config.")
    ] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Remove what is found; without it, only list it.")] = False,
    unless_installed: Annotated[
        bool,
        typer.Option("--unless-installed", help="If the service is installed, remove nothing and exit with 0."),
    ] = False,
) -> None:
    if command.invoked_subcommand is not None:
        if kubeconfig or context or yes or unless_installed:
            echo("escher cleanup gangs: put its options after the word gangs", err=True)
            raise typer.Exit(2)
        return
    import asyncio

    from extender.adapters.kubernetes.writers import traces
    from extender.kube.client.connection import Connection
    from extender.kube.client.credentials import BadConfiguration, Credentials, default_loader
    from extender.kube.errors import Refused, Unavailable

    async def run() -> Traces:
        credentials = await Credentials.load(default_loader(kubeconfig, context))
        async with Connection(credentials) as connection:
            if not yes:
                echo(f"found: {await traces.found(connection)}")
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
        echo(f"escher cleanup: recreated, or kept by finalizers: {left}; does the service still run?", err=True)
        raise typer.Exit(1)


async def nobody_installed(requests: Requests) -> None:
    """Raises Installed if a Deployment of the service exists. Raises Unavailable, Refused."""
    from extender.adapters.kubernetes.writers import traces

    if there := await traces.services(requests):
        raise Installed(
            f"nothing was removed, because the service is installed: Deployment {', '.join(there)}. "
            "Uninstall it, or scale it to 0, and run this again"
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
