"""Conditions: what an EphemeralResource's status says about it; and the nodes that its nodeSpec means, chosen there.

A choice is made once, and again where capacity, nodeSpec or numNodes have changed, or a chosen node has left for good.
It is made durable (status.nodes) before it is in force. One that finds no node is made again in each full round. What
is wrong with an object is written in its Ready condition and goes no further. An object of the management API that is
well is reported a little later than others: most live shortly, and a second write for each would be wasted. What is to
be said is decided in `judge`, apart from writing it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from extender.app.catalog import Catalog, Entry, Identity, identity
from extender.app.keeper import Keeper
from extender.app.node_choice import choose_again, is_same_choice, why_none
from extender.app.ports import EphemeralResource, Gone, MadeChoice, Refused, ResourceStore, Unavailable
from extender.core.names import NodeName

_log = structlog.get_logger(__name__)

WELL_AFTER = 5.0
"""Seconds after which an object that is well, and chooses nothing, is reported to be."""
_AT_MOST = 8
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 30.0


@dataclass(frozen=True, slots=True)
class Status:
    """`chosen`: units by node as nodeSpec chose them; None for an object that has no nodeSpec."""

    chosen: Mapping[NodeName, int] | None
    ready: bool
    reason: str
    message: str


def judge(resource: EphemeralResource, catalog: Catalog, keeper: Keeper) -> Status:
    """What the object's status should say now."""
    if resource.problem:
        return Status(None, False, "Invalid", resource.problem)
    key = resource.name.key(keeper.ledger.domain)
    holder = catalog.holder_of(key)
    if holder is not None and identity(holder) != identity(resource.name):
        what = f"{key} belongs to the older {holder}; this one is in force when that is gone"
        return Status(None, False, "NameTaken", what)
    chosen = resource.chosen
    why = ""
    if resource.choice is not None:
        nodes = _choose(resource, keeper)
        chosen = dict.fromkeys(nodes, resource.capacity or 0)
        if not nodes and resource.capacity:
            why = why_none(resource.choice, keeper.nodes, keeper.ledger)
            if not (resource.chosen and _is_as_asked(resource)):
                return Status({}, False, "NoNode", why)
            chosen = dict(resource.chosen)
    if crowded := catalog.crowded_out(resource.name):
        return Status(chosen, False, "TooManyKeys", f"{crowded}; this one is in force when one of them is gone")
    units = {node: number for node, number in {**(chosen or {}), **resource.nodes}.items() if number}
    if left := sorted(node for node in units if keeper.has_left(node)):
        return Status(chosen, False, "NodeGone", _who_left(left) + (f"; {why}" if why else ""))
    return Status(chosen, True, "Set", f"{sum(units.values())} units on {len(units)} nodes")


def _choose(resource: EphemeralResource, keeper: Keeper) -> Sequence[NodeName]:
    """The nodes of the object's nodeSpec: those chosen before, as long as it asks for the same; else chosen anew."""
    having = resource.chosen or {}
    if not resource.capacity or resource.choice is None:
        return ()
    if resource.choice.node is not None:
        name = resource.choice.node
        return [name] if name in keeper.nodes or name in having else []
    before = resource.chosen_for
    if before is None and resource.observed_generation == resource.generation and having:
        # Chosen by an earlier version of us, which did not say for what.
        before = MadeChoice(resource.capacity, resource.choice)
    before = None if before is None or not having else replace(before, nodes=tuple(having))
    wanted = MadeChoice(resource.capacity, resource.choice)
    nodes, _ = choose_again(wanted, before, having, keeper.nodes, keeper.ledger, keeper.has_left)
    return nodes


def _is_as_asked(resource: EphemeralResource) -> bool:
    """Whether `chosen` was chosen for what is asked now."""
    before, choice = resource.chosen_for, resource.choice
    if before is None or choice is None:
        return before is None and choice is None
    return before.capacity == resource.capacity and is_same_choice(before.choice, choice)


def _who_left(left: Sequence[NodeName]) -> str:
    more = f" and {len(left) - 1} others have" if len(left) > 2 else f" and {left[1]} have" if len(left) > 1 else " has"
    return f"{'node' if len(left) == 1 else 'nodes'} {left[0]}{more} left the cluster"


class Conditions:
    """Hears of every change of the catalog. `chance` gives numbers from 0 to 1."""

    def __init__(
        self,
        keeper: Keeper,
        catalog: Catalog,
        store: ResourceStore,
        *,
        at_most: int = _AT_MOST,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._keeper = keeper
        self._catalog = catalog
        self._store = store
        self._chance = chance
        self._free = asyncio.Semaphore(at_most)
        self._group: asyncio.TaskGroup | None = None
        self._timers: dict[Identity, asyncio.TimerHandle] = {}
        self._writing: set[Identity] = set()
        self._said: dict[Identity, tuple[str, int, Status]] = {}
        """What we said last: of which object (uid), of which generation."""
        catalog.listeners.append(self.hear)
        catalog.rewound.append(self._forget)

    async def run(self, after: Sequence[asyncio.Event] = ()) -> None:
        """Reports until it is cancelled, once every event of `after` is set.

        They are the first lists of nodes, pods and resources: a choice before these would be made among too few.
        """
        for event in after:
            await event.wait()
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                for entry in list(self._catalog.entries()):
                    self.hear(identity(entry.resource.name))
                await asyncio.Event().wait()
            finally:
                self._group = None
                for timer in self._timers.values():
                    timer.cancel()
                self._timers.clear()
                self._writing.clear()

    def look_again(self) -> None:
        """Choices that have found no node are made again; nodes that have left for good, or are back, are noticed."""
        for entry in list(self._catalog.entries()):
            resource, name = entry.resource, identity(entry.resource.name)
            if (
                (resource.choice is not None and not resource.chosen)
                or (name in self._said and self._said[name][2].reason == "NodeGone")
                or not self._keeper.nodes.keys() >= {**resource.nodes, **(resource.chosen or {})}.keys()
            ):
                self.hear(name)

    def _forget(self, name: Identity) -> None:
        # In an object of a former time stands what was said then.
        self._said.pop(name, None)

    def hear(self, name: Identity) -> None:
        """The object is new, changed or gone: its status will be written if it should say something else."""
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()
        entry = self._catalog.get(name)
        if entry is None:
            self._said.pop(name, None)
        elif self._group is not None and name not in self._writing and (status := self._news(name, entry)) is not None:
            can_wait = status.ready and entry.resource.choice is None and name not in self._said
            loop = asyncio.get_running_loop()
            self._timers[name] = loop.call_later(WELL_AFTER if can_wait else 0.0, self._start, name)

    def _news(self, name: Identity, entry: Entry) -> Status | None:
        """What the status should say, if it does not."""
        resource = entry.resource
        if resource.deleting or resource.intent is not None:
            return None
        status = judge(resource, self._catalog, self._keeper)
        said = self._said.get(name)
        if said is not None:
            return None if said == (resource.uid, resource.generation, status) else status
        # What is well was said to be before our time, or was not. What is not is said again: why may be another.
        told = resource.observed_generation == resource.generation and status.chosen == resource.chosen
        told = told and (not status.chosen or _is_as_asked(resource))
        return None if told and status.ready and not resource.said_unready else status

    def _resource_with_news(self, name: Identity) -> tuple[EphemeralResource, Status] | None:
        entry = self._catalog.get(name)
        status = None if entry is None else self._news(name, entry)
        return None if entry is None or status is None else (entry.resource, status)

    def _start(self, name: Identity) -> None:
        del self._timers[name]
        if self._group is not None:
            self._writing.add(name)
            self._group.create_task(self._write(name))

    async def _write(self, name: Identity) -> None:
        pause = _FIRST_PAUSE
        while (news := self._resource_with_news(name)) is not None:
            resource, status = news
            try:
                async with self._free:
                    asked = self._catalog.asking(name)
                    stored = await self._store.set_status(
                        resource,
                        chosen=status.chosen,
                        ready=status.ready,
                        reason=status.reason,
                        message=status.message,
                    )
            except Unavailable as error:
                await asyncio.sleep(max(pause * (1 + self._chance()) / 2, error.retry_after or 0.0))
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            except Gone:
                now = self._catalog.get(name)
                if now is not None and now.resource.uid != resource.uid:
                    continue
                if now is not None:
                    # The watch will tell of it. Should it not, somebody asks.
                    self._catalog.doubtful[name] = None
                break
            except Refused as error:
                _log.error("the API server refuses a status", name="/".join(name), why=str(error))
                self._said[name] = (resource.uid, resource.generation, status)
                break
            self._said[name] = (resource.uid, resource.generation, status)
            self._catalog.learn(stored, asked)
        self._writing.discard(name)
