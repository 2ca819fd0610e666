"""The `escher` command: gathers the commands of the other modules here.

Exit codes everywhere: 0 done, 1 failed, 2 wrong use.
"""

from __future__ import annotations

import signal
from functools import wraps
from typing import Annotated

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from extender import __version__
from extender.cli import cleanup, doctor, explain, gang, policy, quota, resource, serve, state, what_if
from extender.cli.common.terminal import echo
from extender.cli.lab import cluster, compare, demo

app = typer.Typer(
    name="escher",
    help="Placement policies for real Kubernetes clusters without writing a scheduler.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _say_version(wanted: bool) -> None:
    if wanted:
        echo(f"escher {__version__}")
        raise typer.Exit


@app.callback()
def escher(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_say_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """Placement policies for real Kubernetes clusters without writing a scheduler."""


app.command("demo", help=demo.HELP)(demo.demo)
app.command("serve", help=serve.HELP)(serve.serve)
app.command("state", help=state.HELP)(state.state)
app.command("quota", help=quota.HELP)(quota.quota)
app.add_typer(resource.app, name="resource")
app.add_typer(policy.app, name="policy")
app.add_typer(gang.app, name="gang")
app.add_typer(explain.app, name="explain")
app.command("what-if", help=what_if.HELP)(what_if.what_if)
app.command("doctor", help=doctor.HELP)(doctor.doctor)
app.add_typer(cluster.app, name="cluster")
app.add_typer(cleanup.app, name="cleanup")
app.command("compare", help=compare.HELP)(compare.compare)


def main() -> None:
    """Runs the command line and exits."""
    root = get_group(app)
    for each in root.commands.values():
        _hear_interrupts_once_begun(each)
    root(prog_name="escher")


def _hear_interrupts_once_begun(command: object) -> None:
    """Lets an interrupt raise KeyboardInterrupt once a command begins: see `extender.__main__`."""
    assert isinstance(command, TyperCommand | TyperGroup)
    if (run := command.callback) is not None:

        @wraps(run)
        def begun(*args: object, **options: object) -> object:
            if signal.getsignal(signal.SIGINT) not in (signal.SIG_IGN, signal.SIG_DFL):
                signal.signal(signal.SIGINT, signal.default_int_handler)
            return run(*args, **options)

        command.callback = begun
    for each in command.commands.values() if isinstance(command, TyperGroup) else ():
        _hear_interrupts_once_begun(each)
