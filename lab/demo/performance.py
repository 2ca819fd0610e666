"""The performance: plays all scenes in order on an existing cluster, then shows the verdict."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx

from extender.esl import Times
from extender.kube.client.connection import Connection
from extender.kube.client.credentials import Credentials, from_kubeconfig
from lab.compare.trials.approaches import ways
from lab.compare.trials.outside import NAMESPACE
from lab.compare.trials.pods import AT_ONCE
from lab.compare.vocabulary import BASE, EXTENDER, LIBSPACE
from lab.demo import measuring, policy_scenes, scenes
from lab.demo.approaches import Shown
from lab.demo.board import Board
from lab.demo.jobs import PARTLY_AFTER
from lab.demo.outside import Outside
from lab.demo.room import room, spread
from lab.demo.scenes import Show
from lab.demo.service import Service
from lab.demo.stage import Stage

_SHOWN = {
    "plain": (BASE, "plain pods"),
    "extender": (EXTENDER, "extender (escher)"),
    "ghosts": (LIBSPACE, "ghosts (no extender)"),
}
"""The demo's names of the approaches: in results, in the comparison, and for the audience."""


async def perform(
    kubeconfig: Path, service_url: str, stage: Stage, ready: float, rounds: int, seed: int
) -> dict[str, Any]:
    """The result as JSON. `passed`: all is as promised; `ready`: seconds of the cluster's start."""
    began = time.monotonic()
    async with (
        Connection(await Credentials.load(from_kubeconfig(kubeconfig))) as connection,
        httpx.AsyncClient(timeout=10.0, trust_env=False) as client,
    ):
        outside = Outside(connection)
        warming = asyncio.create_task(connection.keep_warm(AT_ONCE))
        async with outside.following(), AsyncExitStack() as stack:
            places = room(outside.cpus())
            # Short, so that the audience soon sees ghosts give up; but kube-scheduler checks all nodes for each place.
            times = Times(reserve_within=2.0 + places.total * places.nodes / 100_000, first_pause=0.5)
            made = await ways(connection, [approach for approach, _ in _SHOWN.values()], stack, seed, times)
            plain, extender, ghosts = (
                Shown(name, title, made[approach].gangs, outside, places.cpu)
                for name, (approach, title) in _SHOWN.items()
            )
            service = Service(service_url, client, NAMESPACE)
            stage.say(f"Ready after {ready:.1f} s: {spread(outside.cpus())}, and the service.")
            stage.command(f"export ESCHER_URL={service_url}")
            if len(places.places) < places.nodes:
                stage.say(f"Members take {places.cpu} CPUs, which {len(places.places):,} of the nodes offer.")
            board = Board(outside, service, stage, places)
            show = Show(connection, outside, service, stage, board, (plain, extender, ghosts), places)
            async with board.on():
                if places.busy:
                    stage.say(f"{len(places.busy):,} of them are busy with the work of others: o in the picture.")
                    await scenes.other_work(show)
                measured = await _story(show, plain, extender, ghosts, rounds, seed)
            rows = measuring.verdict(show, measured)
        warming.cancel()
    policies = policy_scenes.verdict(show)
    if rows:
        _table(show, rows, rounds)
        _policies(show, policies)
    passed = all(scene["passed"] for scene in show.results) and bool(rows)
    passed = passed and not any(row["partial_gangs"] for row in rows if row["approach"] != "plain")
    passed = passed and not any(row["breaches"] for row in policies)
    seconds = time.monotonic() - began
    good, bad = f"All as promised, in {seconds:.0f} s.", "Not all came out as promised: see the lines marked above."
    stage.end(good if passed else bad, good=passed)
    return {
        "passed": passed,
        "nodes": places.nodes,
        "places": places.total,
        "member_cpu": places.cpu,
        "seed": seed,
        "seconds": round(seconds, 1),
        "scenes": show.results,
        "approaches": rows,
        "policies": policies,
    }


async def _story(
    show: Show, plain: Shown, extender: Shown, ghosts: Shown, rounds: int, seed: int
) -> list[measuring.Measured]:
    size, places = show.places * 3 // 4, show.places
    await show.play("late-resource", "A resource that does not exist yet", lambda: scenes.late_resource(show))
    await show.play(
        "contention-plain",
        f"Two jobs, no gangs: A and B have {size} pods of {show.room.cpu} CPUs each, and there is room for {places}",
        lambda: scenes.stuck(show, plain),
    )
    await show.play(
        "contention-extender",
        "The same two jobs as gangs: one label, one annotation, schedulerName escher",
        lambda: scenes.contention(show, extender),
    )
    await show.play(
        "contention-ghosts",
        "The same two gangs without any extender: ghost pods hold the room",
        lambda: scenes.contention(show, ghosts),
    )
    await show.play(
        "policy-apart",
        "A policy of one object: the pods of a service stay apart, each on a node of its own",
        lambda: policy_scenes.apart(show),
    )
    await show.play(
        "policy-near-data",
        "A gang under another: its members are where their data is, and nobody has that yet",
        lambda: policy_scenes.near_data(show, extender),
    )
    measured: list[measuring.Measured] = []

    async def costs() -> dict[str, Any]:
        times = "once" if rounds == 1 else f"{rounds} times"
        show.stage.say(f"Each approach {times}, in an order drawn from the seed; the table is at the end.")
        measured.extend(await measuring.measure(show, rounds, seed))
        return {"rounds": rounds}

    title = f"What it costs: gangs of {measuring.size_of(show)}, one at a time, in turns"
    await show.play("measured", title, costs)
    await show.play(
        "never-fits",
        f"A gang that never fits: {places + 4} pods, all or none",
        lambda: scenes.never_fits(show, extender),
    )
    return measured


def _policies(show: Show, rows: list[dict[str, Any]]) -> None:
    show.stage.table(
        [
            (
                f"{row['policy']} ({row['type']})",
                f"{row['pods']} {row['what']}",
                "never" if not row["breaches"] else f"{row['breaches']} times",
                f"{row['placed_after_ms']:.0f} ms",
            )
            for row in rows
        ],
        ("policy", "governs", "was broken", "placed after the remedy"),
        "was broken: of all that was seen of these pods, from outside. placed after the remedy: from when what explain"
        " told to do was done, until the last that waited was bound.",
    )


def _table(show: Show, rows: list[dict[str, Any]], rounds: int) -> None:
    each = f"{show.outside.patience_per_member * 1000:.0f} ms a member"
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
        ("approach", f"gang of {measuring.size_of(show)}", "to plain", "API writes", "partly bound"),
        f"gang: median of {rounds}, from its first create until its last pod is bound. API writes: for one such"
        " gang, from creation to removal by one call, without events and leases. partly bound: of all gangs in this"
        f" show, those bound in part for more than {PARTLY_AFTER:g} s (or {each}), seen from outside. Containers"
        " start at once here; where they do not, ghosts pay for that too.",
    )
