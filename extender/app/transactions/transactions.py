"""Transactions: set several resources, and claim and release units, as one.

Claims and releases are one commit on the ledger, which is atomic. The API server has no transactions over several
objects. So everything is checked first, then the objects are written, then the claims are committed. In all-or-nothing
mode, a failure on the way rolls back what was written, also if it is a defect. If there is more than one write, an
intent is stored before them and deleted when all is done. So a crash leaves no half of it. Incremental transactions do
not promise that, and claims end with their process in any case. An unanswered write is looked up and, if it was done,
rolled back in either mode. The names are locked during the writes, and some seconds at most until something can be
rolled back. The rest is rolled back name by name unless others have changed it, then by its intent. Other clients may
see a part meanwhile. Callers are answered at the end. Modes and detections are those of `core.ledger.transaction`."""

from __future__ import annotations

import asyncio
from collections import ChainMap
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf

import structlog

from extender.app.cache.claims import holder_of, to_holding
from extender.app.contracts.api import Claim, Outcome, Refusal, Release, SetResource, Transact
from extender.app.contracts.effects import Performer
from extender.app.contracts.errors import Invalid, ManagementError
from extender.app.contracts.kind import Identity, identity
from extender.app.cycle.scheduler import Scheduler
from extender.app.objects.steps import Broken, Change, Create, Delete, Nothing, Unsure
from extender.app.resources.intent_log import Announced, IntentLog
from extender.app.resources.set_resource import Overtaken, Resources
from extender.app.resources.set_resource_plan import Done, Step, for_good, nodes_of, plan
from extender.app.transactions.claim_quota import outside_of, too_many
from extender.app.transactions.progress import Owed, Progress, Undecided
from extender.core.common.backoff import BackOff
from extender.core.ledger.ledger import Cause, Commit, Holder, Mode, Row, Stale
from extender.core.ledger.transaction import decide
from extender.core.ledger.units import Short
from extender.kube.errors import Refused, Unavailable
from extender.kube.names import NodeName, ResourceKey

_log = structlog.get_logger(__name__)

_ATTEMPTS = 8
_UNDO_ATTEMPTS = 6
_FIRST_PAUSE = 0.2


class Transactions:
    """`nudge` is called when claims have set deadlines."""

    def __init__(
        self,
        scheduler: Scheduler,
        performer: Performer,
        resources: Resources,
        intents: IntentLog,
        nudge: Callable[[], None] = lambda: None,
    ) -> None:
        self._scheduler = scheduler
        self._performer = performer
        self._resources = resources
        self._intents = intents
        self._nudge = nudge

    async def transact(self, request: Transact) -> Outcome:
        """Conflicts are an answer. Raises Unavailable, NotYet, NotAnnounced: none is committed."""
        for _ in range(_ATTEMPTS):
            try:
                return await self._try(request)
            except Overtaken as error:
                overtaken = error
        raise Unavailable(str(overtaken), retry_after=1.0) from overtaken

    async def _try(self, request: Transact) -> Outcome:
        now = self._scheduler.cache.clock.steady()
        numbered = list(enumerate(request.operations))
        course = Progress(
            {i: replace(each, dry_run=request.dry_run) for i, each in numbered if isinstance(each, SetResource)},
            {i: to_holding(each, now) for i, each in numbered if isinstance(each, Claim)},
            {i: holder_of(each) for i, each in numbered if isinstance(each, Release)},
        )
        held = (identity(each.name) for each in course.sets.values())
        try:
            async with self._resources.writing.locks.hold(held):
                with self._resources.capacities.underway() as course.underway:
                    try:
                        outcome = await self._transact(request, course)
                    except Undecided:
                        raise
                    except Exception:
                        await self._take_back(request, course)
                        raise
        except Exception:
            await self._take_back_the_rest(course)
            raise
        else:
            await self._take_back_the_rest(course)
        finally:
            self._leave(course)
        if not request.dry_run:
            await self._resources.advertised(node for done in course.written.values() for node in nodes_of(done.step))
        return outcome

    async def _transact(self, request: Transact, course: Progress) -> Outcome:
        all_or_nothing = request.mode is Mode.ALL_OR_NOTHING
        for wish in course.sets.values():
            await self._resources.look_before(wish)
        self._check(request, course)
        if all_or_nothing and not course.refused and not request.dry_run:
            await self._announce(course)
        if all_or_nothing and course.refused:
            return course.outcome((), self._resources)
        await self._write(course, all_or_nothing)
        while course.unsure and not request.dry_run:
            await self._insist(course, course.unsure[0], partial(self._undo_unsure, course))
            del course.unsure[0]
        if course.defect is not None:
            raise course.defect
        if course.unavailable is not None and (all_or_nothing or not course.written):
            raise course.unavailable
        if not (all_or_nothing and course.refused):
            self._claim(request, course)
        if all_or_nothing and course.refused:
            await self._take_back(request, course)
            return course.outcome((), self._resources)
        if course.announced is not None:
            await self._put_in_force(course, course.announced)
        done = [index for index, _ in enumerate(request.operations) if index not in course.refused]
        return course.outcome(done, self._resources)

    # -- before anything is written ------------------------------------------------------------------------------

    def _check(self, request: Transact, course: Progress) -> None:
        """Refuses operations that would fail now; each is judged as if those before were done."""
        if course.claims:
            self._scheduler.cache.require_whole()
        rows, capacities = self._scheduler.cache.ledger.rows, self._resources.capacities
        changed: dict[NodeName, Row] = {}
        coming: dict[NodeName, set[ResourceKey]] = {}
        for index, wish in course.sets.items():
            try:
                step = plan(wish, self._resources.known.get(wish.name), capacities, self._scheduler.cache)
            except ManagementError as error:
                course.refuse(index, error)
                continue
            if isinstance(step, Delete) and step.item.finalizers and _can_fail(request):
                course.refuse(index, for_good(step.item))
                continue
            course.steps[index] = step
            self._resources.may_have(course.underway, wish.name, step, self._resources.known.get(wish.name))
            key, nodes = capacities.key_of(wish.name), nodes_of(step)
            full = capacities.first_full(key, nodes if wish.capacity else (), coming)
            if full is not None:
                course.refuse(index, Invalid("node_spec", full, capacities.too_many(full)))
                continue
            units = _units(step)
            for node in nodes:
                coming.setdefault(node, set()).add(key)
                if node in rows:
                    row = changed.setdefault(node, replace(rows[node], capacity=dict(rows[node].capacity)))
                    row.capacity[key] = units.get(node) or 0
        seen: dict[Holder, int] = {}
        for index, claim in course.claims.items():
            if claim.node not in self._scheduler.cache.nodes:
                course.refused[index] = Refusal(index=index, field="node", detail=f"there is no node {claim.node}")
            elif claim.holder in seen:
                detail = f"operation {seen[claim.holder]} has a claim of the same holder; merge the two"
                course.refused[index] = Refusal(index=index, field="holder", detail=detail)
            elif outside := outside_of(claim, self._scheduler.cache):
                course.refused[index] = Refusal(index=index, field=outside[0], detail=outside[1])
            else:
                seen[claim.holder] = index
        self._refuse_too_many_claims(course)
        if request.mode is Mode.ALL_OR_NOTHING or request.dry_run:
            self._note(course, self._decide(request, course, ChainMap(changed, rows)))

    def _decide(self, request: Transact, course: Progress, rows: Mapping[NodeName, Row]) -> Commit:
        """Returns what would become of the claims on these rows."""
        ledger = self._scheduler.cache.ledger
        claims = [claim for index, claim in course.claims.items() if index not in course.refused]
        releasing = [held for each in course.releases.values() if (held := ledger.holding(each)) is not None]
        return decide(
            rows,
            claims,
            {claim.holder: held for claim in claims if (held := ledger.holding(claim.holder)) is not None},
            {held.holder: held for held in releasing},
            request.mode,
            request.detection,
            request.read,
        ).outcome

    def _note(self, course: Progress, outcome: Commit) -> None:
        index_of = {claim.holder: index for index, claim in course.claims.items() if index not in course.refused}
        for claim, cause in outcome.conflicts:
            course.refused[index_of[claim.holder]] = _refusal(index_of[claim.holder], cause)

    async def _announce(self, course: Progress) -> None:
        """Stores the intent of the writes if a crash could leave half of them."""
        names = course.by_name()
        self._intents.require_finished(names.keys())
        alone = [not isinstance(course.steps[each[0]], Nothing) for each in names.values() if len(each) == 1]
        if sum(alone) + sum(len(each) for each in names.values() if len(each) > 1) < 2:
            return
        known = {name: self._resources.known.get(name) for name in names}
        deletes = [name for name, each in names.items() if any(course.sets[i].capacity == 0 for i in each)]
        course.announced = await self._intents.announce(
            {name: None if entry is None else entry.item for name, entry in known.items()}, deletes
        )

    # -- writing -------------------------------------------------------------------------------------------------

    async def _write(self, course: Progress, all_or_nothing: bool) -> None:
        """Writes different names at the same time, and each name in the order of its operations."""
        writing = (self._write_one_name(course, indices, all_or_nothing) for indices in course.by_name().values())
        # No write is cancelled because another failed: a cancelled write could not be rolled back.
        for failure in await asyncio.gather(*writing, return_exceptions=True):
            course.defect = course.defect or failure

    async def _write_one_name(self, course: Progress, indices: Sequence[int], all_or_nothing: bool) -> None:
        for index in indices:
            if course.defect is not None or (all_or_nothing and (course.refused or course.unavailable)):
                return
            try:
                course.written[index] = await self._resources.write(
                    course.sets[index], course.underway, course.announced
                )
            except ManagementError as error:
                course.refuse(index, error)
            except Unavailable as error:
                course.unavailable = error
                course.unsure += [error.attempt] if isinstance(error, Unsure) else []
                course.refused[index] = Refusal(index=index, detail=f"the API server cannot be reached: {error}")
            except Broken as error:
                course.unsure.append(error.attempt)
                course.defect = error.__cause__
            except Exception as error:
                course.defect = error

    def _claim(self, request: Transact, course: Progress) -> None:
        """Commits the claims and releases, or refuses them with their numbers."""
        if request.dry_run:
            return
        if course.claims:
            self._scheduler.cache.require_whole()
        ledger = self._scheduler.cache.ledger
        self._refuse_too_many_claims(course)
        if course.refused and request.mode is Mode.ALL_OR_NOTHING:
            return
        claims = [claim for index, claim in course.claims.items() if index not in course.refused]
        releasing = list(course.releases.values())
        concerned = dict.fromkeys([*(claim.holder for claim in claims), *releasing])
        course.former_claims = [held for holder in concerned if (held := ledger.holding(holder)) is not None]
        course.claimed = True
        decided = self._scheduler.commit(claims, releasing, request.mode, request.detection, request.read)
        self._note(course, self._performer.do(decided))
        if claims:
            self._nudge()

    def _refuse_too_many_claims(self, course: Progress) -> None:
        """Refuses the last claims that are beyond their namespace's quota."""
        claims = {index: claim for index, claim in course.claims.items() if index not in course.refused}
        for index, over in too_many(claims, list(course.releases.values()), self._scheduler.cache):
            course.refused[index] = Refusal(index=index, field="holder", detail=str(over))

    def _unclaim(self, course: Progress) -> None:
        """Releases this transaction's claims, and restores the former ones if there is room."""
        if not course.claimed:
            return
        course.claimed = False
        ledger = self._scheduler.cache.ledger
        ours = [claim.holder for claim in course.claims.values() if ledger.holding(claim.holder) == claim]
        missing = [each for each in course.former_claims if each.holder in ours or ledger.holding(each.holder) is None]
        self._performer.do(self._scheduler.commit(missing, mode=Mode.INCREMENTAL, given_up=ours))

    async def _put_in_force(self, course: Progress, announced: Announced) -> None:
        """Raises Unavailable if it is not in force, Undecided if it may be (else it is undone)."""
        back_off = BackOff(_FIRST_PAUSE, inf)
        while back_off.failures < _UNDO_ATTEMPTS:
            try:
                decided = await self._intents.withdraw(announced)
                course.is_over = await self._stands(course) if decided is None else decided
                break
            except Unavailable as error:
                wait = back_off.failed(error.retry_after)
                if wait > course.can_wait:
                    self._unclaim(course)
                    course.cannot = True
                    said = f"{error}; the transaction is in force, or will be rolled back"
                    raise Undecided(said, error.retry_after) from error
            course.can_wait -= wait
            await asyncio.sleep(wait)
        if not course.is_over:
            raise Unavailable("another Escher instance has rolled the transaction back", retry_after=1.0)

    async def _stands(self, course: Progress) -> bool:
        """Returns whether what was written is still there, although its intent is gone.

        If so, this process deleted the intent: a service that gives a transaction up rolls it back before it deletes
        the intent.
        """
        done = [each for _, each in sorted(course.written.items()) if not isinstance(each.step, Nothing)]
        if not done:
            return True
        # The last write of all is also the last of its name.
        last = done[-1]
        entry = await self._resources.writing.refresh(last.name)
        known = None if entry is None else entry.item.mark
        return known == (None if last.after is None else last.after.mark)

    # -- rollback ------------------------------------------------------------------------------------------------

    async def _take_back(self, request: Transact, course: Progress) -> None:
        """Rolls the objects back, unless another writer changed them or the API server is away."""
        if request.dry_run:
            return
        self._unclaim(course)
        names: dict[Identity, list[Done]] = {}
        for _, written in sorted(course.written.items()):
            names.setdefault(identity(written.name), []).append(written)
        course.is_taking_back = True
        for writes in reversed(names.values()):
            await self._insist(course, _as_one(writes), self._resources.undoing.undo)
        course.is_taking_back = False

    async def _undo_unsure(self, course: Progress, attempt: Done) -> None:
        written = await self._resources.undoing.find_out(attempt)
        if written is not None:
            await self._resources.undoing.undo(written)
        elif isinstance(attempt.step, Create):
            course.on_their_way.add(identity(attempt.name))

    async def _insist(self, course: Progress, written: Done, undo: Callable[[Done], Awaitable[None]]) -> None:
        """Tries to roll a write back until that is done or impossible, or has to wait too long."""
        undoing, name = Owed(written, undo, BackOff(_FIRST_PAUSE, inf)), identity(written.name)
        while name not in course.left:
            if await self._is_over(course, undoing):
                return
            if undoing.wait > course.can_wait:
                break
            course.can_wait -= undoing.wait
            await asyncio.sleep(undoing.wait)
        course.left.setdefault(name, []).append(undoing)

    async def _take_back_the_rest(self, course: Progress) -> None:
        """Rolls back what was left for later, as far as possible. No other call waits for that."""
        await asyncio.gather(*(self._take_back_name(course, name, each) for name, each in course.left.items()))
        if course.announced is not None and not course.is_over and course.leaves_nothing():
            course.is_over = await self._intents.close(course.announced, course.on_their_way)

    def _leave(self, course: Progress) -> None:
        """Leaves the rest, if any, to the service that finds the intent."""
        if course.announced is not None:
            self._intents.end(course.announced, over=course.is_over)

    async def _take_back_name(self, course: Progress, name: Identity, left: Sequence[Owed]) -> None:
        for undoing in left:
            over = False
            while not over:
                await asyncio.sleep(undoing.wait)
                async with self._resources.writing.locks.hold([name]):
                    over = await self._is_over(course, undoing)

    async def _is_over(self, course: Progress, undoing: Owed) -> bool:
        """Tries once. Returns whether there is nothing more to try."""
        try:
            await undoing.undo(undoing.written)
            return True
        except Unavailable as error:
            undoing.wait = undoing.back_off.failed(error.retry_after)
            if undoing.back_off.failures < _UNDO_ATTEMPTS:
                return False
            why = str(error)
        except Refused as error:
            why = str(error)
        course.cannot = True
        _log.error("a transaction is not completely rolled back", name=str(undoing.written.name), why=why)
        return True


def _can_fail(request: Transact) -> bool:
    """Returns whether an operation that was done may have to be rolled back for another."""
    return request.mode is Mode.ALL_OR_NOTHING and len(request.operations) > 1


def _as_one(writes: Sequence[Done]) -> Done:
    """Merges writes of one name, in order: each has changed the version that the last one left."""
    last = next((each for each in reversed(writes) if not isinstance(each.step, Nothing)), writes[-1])
    return replace(last, before=writes[0].before, earlier=tuple(each.step for each in writes))


def _units(step: Step) -> Mapping[NodeName, int | None]:
    """Returns what the nodes of the step will have of the resource."""
    match step:
        case Create(resource):
            return resource.nodes
        case Change(change):
            return change.nodes
    return {}


def _refusal(index: int, cause: Cause) -> Refusal:
    # A claim's holder has a prefix that no bound pod has: nothing that it claims can be settled.
    assert isinstance(cause, Short | Stale)
    return Refusal(index=index, cause=cause)
