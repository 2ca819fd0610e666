"""Affinity packing: finds nodes for all slots of a gang under affinity and topology spread rules.

The rules are those of `affinity_rules`, which equal kube-scheduler's, so that it accepts the planned nodes. A plan is
also an order: kube-scheduler checks members one by one. Each slot is allowed when the slots before it in the answer are
on their planned nodes. It reads room and changes nothing. `bin_packing` is faster, and plans gangs without such rules
and without pods around that repel them.

The search, with equal slots as one template:

- Required affinity to each other: one topology domain at a time (nodes with equal values of all its topology keys), the
  smallest that could hold the members first; then anywhere.
- Within that, each slot on the next node that is allowed, in turns; with topology spread, in the least crowded domain.
  Two orders of templates are tried: the first slot's own first, and the largest first.
- If that fails and the case is small (`_FEW`): every order and node, up to `_MOST_STEPS`.
- At most `_MOST_LOOKS` looks in all, because a plan is one step of the event loop.

So small cases find a plan if one exists. Large cases with several templates, or with spread over several keys, may miss
one. Cost: O(slots + candidates) for each domain tried, times a logarithm with spread.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import chain

import numpy as np
import numpy.typing as npt

from extender.core.affinity.affinity_rules import NEAR, TOO_MANY, PeerClass, Rules, are_too_many
from extender.core.affinity.pod_affinity_index import Around
from extender.core.cluster import Node, Pod
from extender.core.fit.fit import Asked, asked_of
from extender.core.fit.node_matching import AcceptsPod
from extender.core.gangs.state.bin_packing import Shortfall, cause_of
from extender.core.gangs.state.trial_snapshot import Candidates, Room, Slot, Template, shares_of
from extender.core.ledger.ledger import Holder
from extender.core.ledger.node_arrays import Grid, Numbers
from extender.core.ledger.units import count_in
from extender.kube.names import NodeName, ResourceKey

_FEW = 64
"""Slots x candidates up to which every order and node is tried."""
_MOST_STEPS = 4_000
_MOST_LOOKS = 100_000
"""Looks over all tries: some tenths of a second. 10,000 slots spread on 5,000 nodes take 60,000."""
_PLACED = 1
"""Looks charged to place a slot and to take it back, beside the look at its node."""
_COUNTED_AT_ONCE, _AREAS_AT_ONCE = 64, 8
_ROUNDED_UP = 1 + 1e-9
"""Sums of free units are floats."""
_ONE_BY_ONE, _FEW_WORDS = 512, 16
"""After this number of looks one operation finds all nodes closed to a template.

It comes first for pods that name more labels and tolerations than the second number."""
_PASSED_AT_ONCE = 16
"""Number of closed nodes that are skipped in the time of one look."""
TOO_LARGE = "too many members, nodes and rules for one plan: make more of them alike"


@dataclass(frozen=True, slots=True)
class Seat:
    """A slot, with its pod or a pod like it."""

    slot: Slot
    pod: Pod


def plan(
    room: Room,
    seats: Sequence[Seat],
    candidates: Sequence[NodeName],
    nodes: Mapping[NodeName, Node],
    around: Around,
    looked: Callable[[int], None] = lambda looks: None,
) -> dict[Holder, NodeName] | Shortfall:
    """A node for every seat, in an order in which each is allowed; or how far it came and why.

    `room`: left unchanged. `nodes`: all nodes of the cluster, because topology spread counts them. `looked` is called
    with the number of looks at nodes.
    """
    if not seats:
        return {}
    if are_too_many(seat.pod for seat in seats):
        return Shortfall(0, len(seats), None, TOO_MANY, unsure=True)
    candidates = [name for name in dict.fromkeys(candidates) if name in nodes]
    rules = Rules([seat.pod for seat in seats], nodes, around)
    attempt = _Attempt(room, rules, _templates_of(seats, rules), candidates)
    found = _found(attempt, len(seats), candidates)
    looked(attempt.looks)
    return found


def _found(attempt: _Attempt, seats: int, candidates: list[NodeName]) -> dict[Holder, NodeName] | Shortfall:
    anywhere, best = Candidates(candidates), None
    for order in attempt.orders():
        for within in _places(attempt, candidates):
            found = attempt.greedily(order, anywhere, within, -1 if best is None else best.placed)
            if not isinstance(found, Shortfall):
                return found
            if best is None or found.placed > best.placed:
                best = found
            if attempt.looks >= _MOST_LOOKS:
                return Shortfall(best.placed, best.asked, None, TOO_LARGE, unsure=True)
    assert best is not None
    if seats * len(candidates) <= _FEW and (searched := attempt.every_way(candidates)) is not None:
        return searched
    return best


@dataclass(slots=True)
class _Template(Template):
    """Equal seats: one kind, the same needs, the same nodes."""

    kind: PeerClass
    open: bytes | None = None
    """For each candidate, by number: 1 if it is open to the template; None: not computed.

    It is open if its labels and taints accept the pods, and it had room for one when the plan began."""

    @property
    def cost(self) -> int:
        """Looks charged for the rules at a node; 1 for room alone, or for a kind with few rules."""
        return 1 + self.kind.rules // 8


def _templates_of(seats: Sequence[Seat], rules: Rules) -> list[_Template]:
    found: dict[tuple[object, ...], _Template] = {}
    for seat in seats:
        kind = rules.class_of(seat.pod)
        need = asked_of(seat.slot.units)
        template = found.setdefault((frozenset(need), seat.slot.where, id(kind)), _Template([], need, kind))
        template.slots.append(seat.slot)
    return list(found.values())


def _least_of(templates: Sequence[_Template]) -> Asked:
    """What a slot of any of them needs."""
    needs = [dict(template.need) for template in templates]
    by_all = set(needs[0]).intersection(*needs[1:])
    return [(resource, min(need[resource] for need in needs)) for resource in sorted(by_all)]


def _sum_of(templates: Sequence[_Template]) -> Counter[ResourceKey]:
    """What all slots of all of them need."""
    found = Counter[ResourceKey]()
    for template in templates:
        found.update({resource: units * len(template.slots) for resource, units in template.need})
    return found


@dataclass(slots=True)
class _Within:
    """The topology domain for these templates, by number; others may use any candidate."""

    nodes: Candidates
    templates: frozenset[int]


def _places(attempt: _Attempt, candidates: Sequence[NodeName]) -> Iterator[_Within | None]:
    """Where to look, one after the other; the last is anywhere."""
    templates, rules = attempt.templates, attempt.rules
    keys_of = rules.own_affinity_keys([template.kind for template in templates])
    keys = tuple(dict.fromkeys(key for keys in keys_of.values() for key in keys))
    if keys:
        wanting = frozenset(
            n for n, template in enumerate(templates) if not keys_of.keys().isdisjoint(template.kind.nears)
        )
        wanted = frozenset(n for n, each in enumerate(templates) if not keys_of.keys().isdisjoint(each.kind.wanted_by))
        places: dict[tuple[str, ...], list[NodeName]] = {}
        for name in candidates:
            labels = rules.nodes[name].labels
            if all(key in labels for key in keys):
                places.setdefault(tuple(labels[key] for key in keys), []).append(name)
        there = list(places.values())
        for together in dict.fromkeys((wanting | wanted, wanting)):
            sizes = attempt.copies(there, together)
            for number in sorted(sizes, key=sizes.__getitem__):
                yield _Within(Candidates(there[number]), together)
    yield None


class _Attempt:
    def __init__(self, room: Room, rules: Rules, templates: list[_Template], candidates: Sequence[NodeName]) -> None:
        self._before = room
        self._candidates = candidates
        self.room = room.copy()
        self.rules = rules
        self.templates = templates
        self.looks = 0
        """How often a node was looked at for a slot."""
        self._areas: tuple[int, Sequence[NodeName], Mapping[str, Sequence[NodeName]]] = (-1, (), {})
        """The last spread constraint, and the nodes divided by it; most templates have the same."""
        self._asked = sum(len(template.slots) for template in templates)
        self._closed: set[NodeName] = set()
        """Nodes that refuse the kind placed last, as long as no other kind is placed."""
        self._left: tuple[Sequence[NodeName], Sequence[NodeName]] = (), ()
        """Names, and those of them that were left for that kind."""

    @cached_property
    def _grid(self) -> Grid:
        """What was free on the candidates when the plan began."""
        return self._before.grid(self._candidates)

    def orders(self) -> list[Sequence[int]]:
        """Orders of templates: those that only want to be near others come after them."""
        numbers = range(len(self.templates))

        def follows(number: int) -> bool:
            kind = self.templates[number].kind
            return not set(kind.nears) <= set(kind.wanted_by)

        shares = shares_of(self.templates)
        as_given = tuple(sorted(numbers, key=lambda number: (follows(number), number != 0, -shares[number])))
        largest_first = tuple(sorted(numbers, key=lambda number: (follows(number), -shares[number])))
        return list(dict.fromkeys((as_given, largest_first)))

    def copies(self, places: Sequence[Sequence[NodeName]], numbers: Iterable[int]) -> dict[int, int]:
        """Copies of these templates that fit, by domain; too small domains are left out.

        It uses at most half of the looks, so that tries have the rest: of very many templates only the first count."""
        if not places:
            return {}
        at = np.array([self._grid.numbers[name] for name in chain.from_iterable(places)], np.int64)
        place_of = np.repeat(np.arange(len(places)), [len(names) for names in places])
        together = [self.templates[number] for number in sorted(numbers)]
        total, enough = np.zeros(len(places)), np.ones(len(places), np.bool_)

        def by_place(units: Numbers) -> npt.NDArray[np.float64]:
            # This counts all nodes at once: 64 of them cost about one look.
            self.looks += 1 + len(place_of) // _COUNTED_AT_ONCE
            return np.asarray(np.bincount(place_of, units[at], len(places)), np.float64)

        def copies(need: Asked) -> npt.NDArray[np.float64]:
            return by_place(self._grid.copies(need, self._asked))

        for template in together:
            if self.looks > _MOST_LOOKS // 2:
                break
            whole = copies(template.need)
            total += whole
            enough &= whole >= len(template.slots)
        # Also for all of them at once: the least that each needs, as often as there are slots, and the sum of needs.
        enough &= copies(_least_of(together)) >= sum(len(template.slots) for template in together)
        for resource, units in _sum_of(together).items():
            if self.looks > _MOST_LOOKS // 2:
                break
            enough &= by_place(self._grid.free(resource)) * _ROUNDED_UP >= units
        return {number: int(total[number]) for number in np.flatnonzero(enough).tolist()}

    def greedily(
        self, order: Sequence[int], anywhere: Candidates, within: _Within | None, best: int
    ) -> dict[Holder, NodeName] | Shortfall:
        """Each seat on the next node that is allowed. The room is left unchanged.

        The cause of a shortfall is worked out only if more than `best` slots are placed: it costs as much as a try."""
        placed: dict[Holder, NodeName] = {}
        done: list[tuple[_Template, NodeName]] = []
        shortfall: Shortfall | None = None
        kind: PeerClass | None = None
        for number in order:
            template = self.templates[number]
            if template.kind is not kind:
                kind, self._closed, self._left = template.kind, set(), ((), ())
            near = within is not None and number in within.templates
            names = (within.nodes if within is not None and near else anywhere).of(template)
            queue = _Queue(self, template, names)
            for slot in template.slots:
                name = queue.next()
                if name is None:
                    explain = len(placed) > best
                    shortfall = (
                        self._shortfall(len(placed), template, names)
                        if explain
                        else Shortfall(len(placed), self._asked, None)
                    )
                    break
                self._place(template, name)
                self.looks += template.cost + _PLACED
                done.append((template, name))
                placed[slot.holder] = name
            if shortfall is not None:
                break
        for template, name in done:
            self._place(template, name, -1)
        return placed if shortfall is None else shortfall

    def by_area(self, spread: int, names: Sequence[NodeName]) -> Mapping[str, Sequence[NodeName]]:
        """As `Rules.by_area`."""
        if self._areas[0] != spread or self._areas[1] is not names:
            self.looks += len(names)
            self._areas = spread, names, self.rules.by_area(spread, names)
        self.looks += len(self._areas[2]) // _AREAS_AT_ONCE
        return self._areas[2]

    def left(self, names: Sequence[NodeName]) -> Sequence[NodeName]:
        """The names without the nodes that refuse the kind of the templates before, if it is the same."""
        if self._left[0] is not names:
            self._left = names, names
        if self._closed:
            self.looks += len(self._left[1]) // _COUNTED_AT_ONCE
            self._left = names, [name for name in self._left[1] if name not in self._closed]
        return self._left[1]

    def worth_a_look(self, template: _Template, names: Iterable[NodeName]) -> Iterator[NodeName]:
        """The names without the nodes that the template never may use, if these are known."""
        if template.open is None and not self._is_known(template):
            return iter(names)
        open_by_number, numbers, passed = template.open or b"", self._grid.numbers, 0

        def is_open(name: NodeName) -> bool:
            nonlocal passed
            if open_by_number[numbers[name]]:
                return True
            passed += 1
            self.looks += not passed % _PASSED_AT_ONCE
            return False

        return filter(is_open, names)

    def _is_known(self, template: _Template) -> bool:
        """Whether the nodes that the template never may use are known. Never so for offered nodes."""
        accepts, only = template.slots[0].accepts, template.slots[0].only
        if only is not None or not isinstance(accepts, AcceptsPod):
            return False
        words = accepts.words
        if self.looks <= _ONE_BY_ONE and words <= _FEW_WORDS:
            return False
        self.looks += words + len(self._candidates) // _COUNTED_AT_ONCE
        template.open = (self._grid.accepting.by_rules(accepts) & self._grid.has_room(template.need)).tobytes()
        return True

    def refused_for_good(self, template: _Template, name: NodeName) -> bool | None:
        """Whether a refusal by room or rule lasts while only this template is placed; else None.

        Pods that it wants to be near do not change: its like is accepted near them only."""
        if self.room.lacking(name, template.need) is not None:
            return True
        self.looks += template.cost - 1
        refusal = self.rules.refusal(template.kind, self.rules.nodes[name])
        if refusal is None:
            return None
        for_good = refusal[1] or refusal[0] == NEAR
        if for_good:
            self._closed.add(name)
        return for_good

    def _place(self, template: _Template, name: NodeName, by: int = 1) -> None:
        self.rules.place(template.kind, self.rules.nodes[name], by)
        self.room.take(name, ((resource, by * units) for resource, units in template.need))

    def _shortfall(self, placed: int, template: _Template, names: Sequence[NodeName]) -> Shortfall:
        if self.looks > _MOST_LOOKS:
            return Shortfall(placed, self._asked, None, TOO_LARGE, unsure=True)
        said: Counter[str] = Counter()
        lacks: list[tuple[ResourceKey, int, int]] = []
        self.looks += len(names)
        for name in names:
            if not template.may_be_on(name):
                continue
            if (lack := self.room.lacking(name, template.need)) is not None:
                lacks.append(lack)
                continue
            self.looks += template.cost - 1
            if (refusal := self.rules.refusal(template.kind, self.rules.nodes[name])) is not None:
                said[refusal[0]] += 1
        if said:
            return Shortfall(placed, self._asked, None, max(said, key=said.__getitem__))
        cause, others = cause_of(lacks)
        return Shortfall(placed, self._asked, cause, others=others)

    # The exhaustive search.

    def every_way(self, candidates: Sequence[NodeName]) -> dict[Holder, NodeName] | None:
        """A plan if one exists; None also if the search exceeds `_MOST_STEPS`."""
        waiting = [list(template.slots) for template in self.templates]
        fitting = [[name for name in candidates if template.may_be_on(name)] for template in self.templates]
        placed: dict[Holder, NodeName] = {}
        there: Counter[tuple[int, NodeName]] = Counter()
        in_vain: set[frozenset[tuple[tuple[int, NodeName], int]]] = set()
        steps = 0
        # `in_vain`: counts of each template on each node that led to no plan, whatever their order.
        ordered = any(each.kind.nears or each.kind.spreads for each in self.templates)

        def search() -> bool:
            nonlocal steps
            if len(placed) == self._asked:
                return True
            state = frozenset(there.items())
            if state in in_vain:
                return False
            for number, template in enumerate(self.templates):
                if not waiting[number]:
                    continue
                for name in fitting[number]:
                    steps += 1
                    if steps > _MOST_STEPS:
                        return False
                    if self.refused_for_good(template, name) is not None:
                        continue
                    slot = waiting[number].pop(0)
                    self._place(template, name)
                    placed[slot.holder] = name
                    count_in(there, (number, name), 1)
                    if search():
                        return True
                    count_in(there, (number, name), -1)
                    del placed[slot.holder]
                    self._place(template, name, -1)
                    waiting[number].insert(0, slot)
                if not ordered:
                    break
            in_vain.add(state)
            return False

        return dict(placed) if search() else None


class _Queue:
    """The nodes for the slots of one template, in turns: a used node goes to the end.

    With topology spread, the least crowded area is asked first."""

    def __init__(self, attempt: _Attempt, template: _Template, names: Sequence[NodeName]) -> None:
        self._attempt = attempt
        self._template = template
        self._spread = attempt.rules.areas(template.kind)
        self._areas: Mapping[str, Sequence[NodeName]] = (
            {"": attempt.left(names)} if self._spread is None else attempt.by_area(self._spread, names)
        )
        self._turns: dict[str, _Turns] = {}
        self._heap = [(self._crowd(area), number, area) for number, area in enumerate(self._areas)]
        heapify(self._heap)

    def _crowd(self, area: str) -> int:
        return 0 if self._spread is None else self._attempt.rules.crowd(self._spread, area)

    def next(self) -> NodeName | None:
        """The node for the next slot, placed before the next call; None: none, or too many looks."""
        aside: list[tuple[int, int, str]] = []
        found: NodeName | None = None
        while self._heap and found is None and self._attempt.looks <= _MOST_LOOKS:
            crowd, number, area = heappop(self._heap)
            self._attempt.looks += 1
            if (now := self._crowd(area)) > crowd:
                heappush(self._heap, (now, number, area))
                continue
            found = self._next_in(area)
            if area not in self._turns or not self._turns[area].is_empty:
                aside.append((crowd, number, area))
        for each in aside:
            heappush(self._heap, each)
        return found

    def _next_in(self, area: str) -> NodeName | None:
        template, rules = self._template, self._attempt.rules
        if self._spread is not None and rules.is_full(template.kind, self._spread, area):
            return None
        if (turns := self._turns.get(area)) is None:
            turns = self._turns[area] = _Turns(self._attempt.worth_a_look(template, self._areas[area]))
        for name in turns.round():
            self._attempt.looks += 1
            if self._attempt.looks > _MOST_LOOKS:
                return None
            if not template.may_be_on(name):
                continue
            refused_for_good = self._attempt.refused_for_good(template, name)
            if not refused_for_good:
                turns.behind.append(name)
            if refused_for_good is None:
                return name
        return None


@dataclass(slots=True)
class _Turns:
    """Nodes that were not looked at yet, and behind them those to look at again."""

    ahead: Iterator[NodeName]
    behind: deque[NodeName] = field(default_factory=deque)
    is_through: bool = False

    def round(self) -> Iterator[NodeName]:
        """Each node once. The caller appends to `behind` the nodes to look at again."""
        again = len(self.behind)
        yield from self.ahead
        self.is_through = True
        for _ in range(again):
            yield self.behind.popleft()

    @property
    def is_empty(self) -> bool:
        return self.is_through and not self.behind
