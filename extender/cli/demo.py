"""`escher demo`: the main job from start to finish, on a real control plane that lives as long as the command."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from typing import Annotated, Any

import httpx
import structlog
import typer
import uvloop
from rich.console import Console

from extender.adapters.kube.connection import Connection
from extender.adapters.kube.credentials import Credentials, from_kubeconfig
from extender.adapters.kube.extended_resource_gangs import ExtendedResourceGangs
from extender.cli.reported import Told, reported
from extender.controlplane import binaries
from extender.controlplane.cluster import RealCluster
from extender.controlplane.errors import WrongUse
from extender.demo import scenes
from extender.demo.approaches import Extender, Ghosts, Plain
from extender.demo.outside import NAMESPACE, PARTLY_AFTER, Outside
from extender.demo.scenes import Show
from extender.demo.service import Service
from extender.demo.stage import Stage
from extender.esl import Space, Times

HELP = """Show the main job, start to finish: resources made at run time, gangs placed all or none, in every approach.

Exit code 0 if all came out as promised, 1 if not. Ctrl-C leaves nothing running.

Example: escher demo --real
"""

_WARM = 16


def demo(
    real: Annotated[
        bool, typer.Option("--real", help="On a real control plane, built from source the first time (needs Go).")
    ] = False,
    nodes: Annotated[int, typer.Option(min=4, max=5000, help="Nodes of 8 CPUs each.")] = 16,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="Gangs measured per approach.")] = 5,
    seed: Annotated[int, typer.Option(help="Draws the order in which approaches are measured.")] = 1,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON; the story goes to standard error.")
    ] = False,
) -> None:
    with reported():
        if not real:
            raise WrongUse("the embedded cluster is not there yet; `escher demo --real` runs on a real control plane")
        console = Console(stderr=as_json, highlight=False)
        stage = Stage(console)
        stage.title(
            "Escher for Kubernetes: gangs and ephemeral resources on a real control plane",
            f"Kubernetes {binaries.kubernetes_version()} on this machine, {nodes} nodes of 8 CPUs (played by kwok)",
        )
        # Built first, so that the time to start can be told from the time to build.
        with Told() as told:
            binaries.build(told)
            began = time.monotonic()
            cluster = RealCluster.start(nodes=nodes, progress=told)
        with cluster:
            stage.say(
                f"ready after {time.monotonic() - began:.0f} s: two kube-schedulers, Escher at {cluster.service_url}"
            )
            result = uvloop.run(_perform(cluster, stage, nodes, rounds, seed))
    if as_json:
        sys.stdout.write(json.dumps(result, indent=2) + "\n")
    raise typer.Exit(0 if result["passed"] else 1)


async def _perform(cluster: RealCluster, stage: Stage, nodes: int, rounds: int, seed: int) -> dict[str, Any]:
    began = time.monotonic()
    _only_errors()
    async with (
        Connection(await Credentials.load(from_kubeconfig(cluster.kubeconfig))) as connection,
        httpx.AsyncClient(timeout=10.0, trust_env=False) as client,
    ):
        outside = Outside(connection)
        times = Times(reserve_within=2.0, first_pause=0.5)
        ghosts = ExtendedResourceGangs(connection, namespace=NAMESPACE, space=Space.LIB, times=times, seed=seed)
        warming = asyncio.create_task(connection.keep_warm(_WARM))
        async with outside.following(), ghosts:
            plain, extender = Plain(connection, outside), Extender(connection, outside)
            through_ghosts = Ghosts(connection, outside, ghosts)
            service = Service(cluster.service_url, client, NAMESPACE)
            ways = (plain, extender, through_ghosts)
            show = Show(connection, outside, service, stage, ways, nodes)
            await _story(show, plain, extender, through_ghosts)
            rows = await _table(show, rounds, seed)
        warming.cancel()
    passed = all(scene["passed"] for scene in show.results) and bool(rows)
    passed = passed and not any(row["partial_gangs"] for row in rows if row["approach"] != "plain")
    stage.end(
        f"All as promised, in {time.monotonic() - began:.0f} s."
        if passed
        else "Not all came out as promised: see the lines marked above."
    )
    return {
        "passed": passed,
        "kubernetes": binaries.kubernetes_version(),
        "nodes": nodes,
        "seed": seed,
        "scenes": show.results,
        "approaches": rows,
    }


async def _story(show: Show, plain: Plain, extender: Extender, ghosts: Ghosts) -> None:
    size, places = show.places * 3 // 4, show.places
    show.stage.say("")
    await show.play("late-resource", "A resource that does not exist yet", lambda: scenes.late_resource(show))
    await show.play(
        "contention-plain",
        f"Two jobs, no gangs: A and B have {size} pods each, and there is room for {places}",
        lambda: scenes.contention(show, plain),
    )
    await show.play(
        "contention-extender",
        "The same two jobs as gangs: one label, one annotation, schedulerName escher",
        lambda: scenes.contention(show, extender),
    )
    await show.play(
        "never-fits",
        f"A gang that never fits: {places + 4} pods, all or none",
        lambda: scenes.never_fits(show, extender),
    )
    await show.play(
        "contention-ghosts",
        "The same two gangs without any extender: ghost pods hold the room",
        lambda: scenes.contention(show, ghosts),
    )


async def _table(show: Show, rounds: int, seed: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []

    async def scene() -> dict[str, Any]:
        rows.extend(scenes.verdict(show, await scenes.measure(show, rounds, seed)))
        return {"rounds": rounds}

    size = max(2, show.places // 4)
    await show.play("measured", f"What it costs: gangs of {size}, one at a time, in turns", scene)
    if rows:
        show.stage.table(
            [
                (
                    row["title"],
                    f"{row['median_ms']:.0f} ms",
                    f"{row['ratio_to_plain']:.2f}",
                    f"{row['writes_per_gang']:.0f}",
                    f"{row['partial_gangs']} of {row['gangs']}",
                )
                for row in rows
            ],
            ("approach", f"gang of {size}", "to plain", "API writes", "partly bound"),
            f"gang: median of {rounds}, from its first create until its last pod is bound. API writes: for one such"
            " gang, from creation to removal, without events and leases. partly bound: of all gangs in this show, those"
            f" bound in part for more than {PARTLY_AFTER:.0f} s, seen from outside. Containers start at once here;"
            " where they do not, ghosts pay for that too.",
        )
    return rows


def _only_errors() -> None:
    # What the parts of the service that run in here say to operators is not for this audience.
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
