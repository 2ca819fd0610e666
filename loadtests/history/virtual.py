"""Virtual: plays the history on the embedded cluster, in virtual time; an hour takes seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from extender.cli import cleanup
from extender.kube.client.requests import JSON, MERGE_PATCH
from extender.kube.errors import Refused, Unavailable
from extender.settings.settings import Settings
from lab.simulation import Simulation
from loadtests.harm.embedded import attach
from loadtests.history.asks import Ask, Placed
from loadtests.history.course import CHANGED, course
from loadtests.history.dumps import PASSING, Dump, content, differences, keys_of_ours, without_our_keys
from loadtests.history.outcome import Outcome
from loadtests.history.scene import settle
from loadtests.history.touches import Touches

_WITHIN = 60.0


async def play(
    seconds: float,
    *,
    seed: int = 1,
    settings: Settings | None = None,
    meanwhile: Callable[[Simulation], Awaitable[object]] | None = None,
) -> Outcome:
    """The outcome after `seconds`. Tests break something by `meanwhile`, after the restart."""
    async with Simulation(seed=seed, settings=settings) as simulation:
        simulation.kill()
        failed = [wrong for ask in settle() if (wrong := await _done(simulation, ask))]
        await _settled(simulation)
        before = dumped(simulation)
        touches, witness = Touches(), attach(simulation)
        simulation.cluster.api.audit.subscribe(touches.heard)
        await simulation.restart()
        began = asyncio.get_running_loop().time()
        for moment in course():
            await asyncio.sleep(began + moment.share * seconds - asyncio.get_running_loop().time())
            if isinstance(moment.what, str):
                witness.interrupted(simulation.clock.now())
                await simulation.restart(2.0)
                if meanwhile is not None:
                    await meanwhile(simulation)
            elif wrong := await _done(simulation, moment.what):
                failed.append(wrong)
        await asyncio.sleep(began + seconds - asyncio.get_running_loop().time())
        witness.finish(simulation.clock.now())
        there = dumped(simulation)
        simulation.kill()
        left = await cleanup.removed(simulation.requests, asyncio.sleep)
        theirs = without_our_keys(before)
        return Outcome(
            touches.found,
            list(map(str, witness.violations())),
            failed,
            differences(theirs, without_our_keys(_of_others(there)), CHANGED),
            differences(theirs, dumped(simulation), CHANGED) + ([str(left)] if left else []),
            touches.writes,
            witness.evictions,
            keys_of_ours(there),
        )


def dumped(simulation: Simulation) -> Dump:
    return {path: content(each) for path, each in _stored(simulation).items()}


def _stored(simulation: Simulation) -> Dump:
    api = simulation.cluster.api
    found = {}
    for kind in api.served.all():
        for each in api.store.list(kind) if (kind.group, kind.plural) not in PASSING else ():
            metadata = each["metadata"]
            found[kind.path(metadata.get("namespace", ""), metadata["name"])] = each
    return found


def _of_others(dump: Dump) -> Dump:
    """Without the objects of the users who try Escher."""
    return {path: each for path, each in dump.items() if not path.startswith("/apis/escher.dev/")}


async def _done(simulation: Simulation, ask: Ask | Placed) -> str:
    """What is wrong with the answer; empty: nothing."""
    if isinstance(ask, Placed):
        return await _placed(simulation, ask)
    if ask.needs_real:
        return ""
    content_type = MERGE_PATCH if ask.method == "PATCH" else JSON
    try:
        await simulation.ask(ask.method, ask.path, ask.body, content_type=content_type)
    except (Refused, Unavailable) as error:
        return "" if ask.refused else f"{ask}: {error}"
    return f"{ask}: was not refused" if ask.refused else ""


async def _placed(simulation: Simulation, placed: Placed) -> str:
    for _ in range(int(_WITHIN)):
        pods = _stored(simulation)
        if all(path in pods and pods[path]["spec"].get("nodeName") for path in placed.paths):
            return ""
        await asyncio.sleep(1.0)
    return f"{placed}: not within {_WITHIN:g} s"


async def _settled(simulation: Simulation) -> None:
    """Waits until all bound pods run."""
    for _ in range(int(_WITHIN)):
        await asyncio.sleep(1.0)
        pods = [each for path, each in _stored(simulation).items() if "/pods/" in path]
        if all(each["status"].get("phase") == "Running" for each in pods if each["spec"].get("nodeName")):
            return
    raise AssertionError("the scene has not settled")
