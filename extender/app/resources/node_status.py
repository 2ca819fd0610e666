"""Node status: writes what the ledger has of Escher's domain into the status of nodes.

    advertise(node) --> marked --> written --(changed meanwhile)--> marked again
                          ^           |
                          +-- pause --+ the API server cannot be reached

The first change of a node is written at once. All changes during its PATCH, and for about twice its duration after it,
wait for one more PATCH with the state at that time. So a slow API server gets fewer requests. The desired state is read
from the `Scheduler` at the moment of writing, never carried along. The node's status from the watch counts only if it
is not older than Escher's last write, so that a late echo causes no write. That holds for as long as a watch can be
late, and until a list arrives that was requested later; versions from before such a list are void. If another writer
changes the status back, it is written again, more and more slowly (`conflict_backoff`)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from extender.app.cache.cache import Cache
from extender.app.contracts.ports import NodeStatusWriter
from extender.app.objects.retry import until_answered
from extender.app.objects.versions import older
from extender.app.resources.conflict_backoff import ConflictBackoff
from extender.core.cluster import Node
from extender.core.common.backoff import BackOff
from extender.core.names import in_domain
from extender.kube.errors import Gone, Refused, Unavailable
from extender.kube.names import NodeName, ResourceKey

_log = structlog.get_logger(__name__)

_AT_MOST = 32
"""PATCHes under way at the same time."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 30.0
_REST, _LONGEST_REST = 2.0, 0.25
"""Pause after a PATCH of a node: a multiple of its duration, and the most seconds."""
_LATE = 150.0
"""Seconds after a write in which an older status means a late watch; a dead one shows sooner."""
_NEITHER = -1
"""Replaces the stated value if capacity and allocatable differ."""

_Stated = dict[ResourceKey, int]


@dataclass(slots=True)
class _Pending:
    """A node to be written. `marked`: the write that is done or under way may not be all."""

    marked: bool = True
    waiting: list[asyncio.Future[bool]] = field(default_factory=list)
    """The next write that begins sets whether it succeeded."""
    served: list[asyncio.Future[bool]] = field(default_factory=list)
    """The write that is under way sets whether it succeeded."""
    unsure: dict[ResourceKey, None] = field(default_factory=dict)
    """What a write that failed on the way may have changed, or not."""
    news: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the node changes: a write that is held back is then considered again."""


class WriteBack:
    """Writes node status. `at_most`: PATCHes under way at the same time.

    `wrote` gets the seconds that each took. `undone` is called for each repair of what another writer changed back.
    `chance` gives numbers from 0 to 1."""

    def __init__(
        self,
        cache: Cache,
        writer: NodeStatusWriter,
        *,
        at_most: int = _AT_MOST,
        wrote: Callable[[float], None] = lambda seconds: None,
        undone: Callable[[], None] = lambda: None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._cache = cache
        self._writer = writer
        self._wrote = wrote
        self._undone = undone
        self._fights = ConflictBackoff()
        self._chance = chance
        self._pending: dict[NodeName, _Pending] = {}
        self._written: dict[NodeName, tuple[str, _Stated, float]] = {}
        """Nodes whose watch may not show Escher's last write: version, content and time of it."""
        self._rests_until: dict[NodeName, float] = {}
        self._free = asyncio.Semaphore(at_most)
        self._group: asyncio.TaskGroup | None = None

    @property
    def pending(self) -> int:
        """Number of nodes that are to be written, or are being written."""
        return len(self._pending)

    def fights(self) -> int:
        """Returns the number of nodes on which another writer keeps changing the status back."""
        return self._fights.count(asyncio.get_running_loop().time())

    def advertise(self, node: NodeName) -> None:
        """Has the node's status written if it differs from what is desired. Returns at once."""
        pending = self._pending.get(node)
        if pending is not None:
            pending.marked = True
            pending.news.set()
        elif self._difference(node):
            self._pending[node] = _Pending()
            self._start(node)

    def before_list(self) -> Callable[[], None]:
        """Is called when a list of nodes is requested; the caller calls the result when it arrives.

        The list is newer than what was written before the request, whatever its versions."""
        asked_at = asyncio.get_running_loop().time()

        def is_there() -> None:
            for node in [node for node, (_, _, when) in self._written.items() if when < asked_at]:
                del self._written[node]

        return is_there

    def forget_departed(self) -> None:
        """Forgets nodes that are not in the cluster, except those with a write under way."""
        known = {*self._written, *self._rests_until, *self._fights.nodes()}
        for node in known - self._cache.nodes.keys() - self._pending.keys():
            self._written.pop(node, None)
            self._rests_until.pop(node, None)
            self._fights.forget(node)

    async def settled(self, nodes: Iterable[NodeName], within: float) -> bool:
        """Waits until these nodes state what is desired now; False if not in `within` seconds.

        Returns False at once before `run`, because nothing is written then."""
        futures: list[asyncio.Future[bool]] = []
        for node in nodes:
            if (pending := self._pending.get(node)) is not None:
                future = asyncio.get_running_loop().create_future()
                (pending.waiting if pending.marked else pending.served).append(future)
                futures.append(future)
        if not futures:
            return True
        if self._group is None:
            return False
        done, late = await asyncio.wait(futures, timeout=within)
        return not late and all(future.result() for future in done)

    async def run(self, after: Sequence[asyncio.Event] = ()) -> None:
        """Writes until it is cancelled, once every event of `after` is set.

        The events are the first lists of nodes and of resources. Before these, correct values on nodes would be
        removed."""
        for event in after:
            await event.wait()
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                for node, pending in list(self._pending.items()):
                    pending.marked = True
                    self._start(node)
                await asyncio.Event().wait()
            finally:
                self._group = None

    # -- one node ------------------------------------------------------------------------------------------------

    def _start(self, node: NodeName) -> None:
        if self._group is not None:
            self._group.create_task(self._keep_writing(node, self._pending[node]))

    async def _keep_writing(self, node: NodeName, pending: _Pending) -> None:
        while pending.marked:
            back_off = BackOff(_FIRST_PAUSE, _LONGEST_PAUSE, self._chance)
            try:
                await until_answered(lambda: self._try(node, pending), back_off=back_off, what="write back", node=node)
                written = True
            except Gone:
                # The node may come back under its name; its first event then shows the difference.
                self._written.pop(node, None)
                self._fights.forget(node)
                written = False
            except Refused as error:
                # A retry at once would be refused too. The node's next event and each full round try again.
                _log.error("the API server refuses to write a node's status", node=node, why=str(error))
                written = False
            pending.unsure = {}
            for future in pending.served:
                if not future.done():
                    future.set_result(written)
            pending.served = []
        del self._pending[node]

    async def _try(self, node: NodeName, pending: _Pending) -> None:
        await self._rest(node, pending)
        async with self._free:
            pending.marked = False
            pending.served, pending.waiting = pending.served + pending.waiting, []
            try:
                await self._write(node, pending)
            except Unavailable:
                pending.marked = True
                raise

    async def _write(self, node: NodeName, pending: _Pending) -> None:
        differing = self._difference(node)
        difference = dict.fromkeys([*differing, *pending.unsure])
        if not difference or node not in self._cache.nodes:
            return
        desired = self._desired(node)
        loop = asyncio.get_running_loop()
        repairs = bool(differing) and self._fights.is_repair(node, desired, differing)
        if repairs and self._fights.is_to_be_told(node, loop.time()):
            # Before Escher's write, which takes over the ownership of the fields.
            await self._tell(node, desired, differing)
        began = loop.time()
        pending.unsure = difference
        changed = {resource: desired[resource] for resource in difference if resource in desired}
        version = await self._writer.advertise(node, changed, [r for r in difference if r not in desired])
        self._written[node] = (version, desired, loop.time())
        took = loop.time() - began
        self._fights.left(node, desired)
        if repairs:
            self._fights.repaired(node, loop.time())
            self._undone()
        self._rests_until[node] = loop.time() + min(_REST * took, _LONGEST_REST)
        self._wrote(took)

    async def _tell(self, node: NodeName, desired: _Stated, differing: Sequence[ResourceKey]) -> None:
        seen = self._cache.nodes[node]
        try:
            managers = list(await self._writer.managers(node, differing))
        except (Unavailable, Refused) as error:
            managers = [f"not known: {error}"]
        _log.warning(
            "another client changes a node's status back; Escher restores it at growing intervals",
            node=node,
            desired={each: desired.get(each) for each in differing},
            found={each: (seen.capacity.get(each), seen.allocatable.get(each)) for each in differing},
            managers=managers or ["not known"],
        )

    async def _rest(self, node: NodeName, pending: _Pending) -> None:
        seconds = self._rests_until.pop(node, 0.0) - asyncio.get_running_loop().time()
        if seconds > 0:
            await asyncio.sleep(seconds)
        while (seconds := self._holds_back(node)) > 0:
            pending.news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await pending.news.wait()

    def _holds_back(self, node: NodeName) -> float:
        """Returns the seconds for which this node is not written, if nothing else happens."""
        wait = self._fights.wait(node, asyncio.get_running_loop().time())
        differing = self._difference(node) if wait else []
        return wait if differing and self._fights.is_repair(node, self._desired(node), differing) else 0.0

    def _desired(self, node: NodeName) -> _Stated:
        row = self._cache.ledger.rows.get(node)
        return {} if row is None else dict(row.ephemeral)

    def _difference(self, node: NodeName) -> list[ResourceKey]:
        """Returns Escher's resources that the node, if present, states otherwise than desired."""
        seen = self._cache.nodes.get(node)
        if seen is None:
            return []
        desired, stated = self._desired(node), self._stated(seen)
        return [r for r in desired | stated if desired.get(r) != stated.get(r)]

    def _stated(self, seen: Node) -> _Stated:
        """Returns what the node states of Escher's domain, by the watch or by a later write."""
        written = self._written.get(seen.name)
        if written is not None:
            version, left, when = written
            if older(seen.version, version) and asyncio.get_running_loop().time() - when < _LATE:
                return left
            del self._written[seen.name]
        domain = self._cache.ledger.capacity.domain
        ours = [r for r in {**seen.capacity, **seen.allocatable} if in_domain(r, domain)]
        return {r: _agreed(seen.capacity.get(r), seen.allocatable.get(r)) for r in ours}


def _agreed(capacity: int | None, allocatable: int | None) -> int:
    return capacity if capacity is not None and capacity == allocatable else _NEITHER
