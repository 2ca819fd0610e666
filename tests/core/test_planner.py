"""Planning a gang: spread, all or nothing, exact where all slots are alike."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from extender.core.fit.fit import Asked
from extender.core.gangs.preemption.feasibility import aim
from extender.core.gangs.state import bin_packing as packing
from extender.core.gangs.state import trial_snapshot as room
from extender.core.gangs.state.bin_packing import Shortfall, Slot, plan
from extender.core.gangs.state.trial_snapshot import Room
from extender.core.ledger import audit as ledger_audit
from extender.core.ledger.ledger import Holder, Holding, HoldingKind, Ledger
from extender.core.ledger.node_arrays import Accepts
from extender.core.ledger.units import Short
from extender.core.names import GangKey
from extender.kube.names import NodeName, PodUid, ResourceKey
from tests.builders import NOW, ledger_of, slot, units
from tests.core.snapshots import snapshot

CPU, GPU = ResourceKey("cpu"), ResourceKey("nvidia.com/gpu")


def slots(*sizes: int, accepts: Accepts | None = None) -> list[Slot]:
    return [Slot(Holder(f"s{index}"), units(cpu=size), accepts) for index, size in enumerate(sizes)]


def names(ledger: Ledger) -> list[NodeName]:
    return list(ledger.rows.present())


def cluster(*cpus: int) -> Ledger:
    return ledger_of({f"n{index + 1}": {"cpu": cpu} for index, cpu in enumerate(cpus)})


# -- examples --------------------------------------------------------------------------------------------------------


def test_a_gang_is_spread_one_slot_a_node_and_then_a_second_round() -> None:
    ledger = cluster(3, 1, 3)
    assert plan(ledger, slots(1, 1, 1, 1, 1), names(ledger)) == {
        "s0": "n1",
        "s1": "n2",
        "s2": "n3",
        "s3": "n1",
        "s4": "n3",
    }


def test_a_plan_follows_the_order_of_the_candidates_and_leaves_the_ledger_alone() -> None:
    ledger = cluster(1, 1, 1)
    before, gains = snapshot(ledger), ledger.changes.gain_count
    assert plan(ledger, slots(1, 1), [NodeName("n3"), NodeName("n1")]) == {"s0": "n3", "s1": "n1"}
    assert (snapshot(ledger), ledger.changes.gain_count) == (before, gains)


def test_no_plan_says_how_many_found_a_node_and_what_was_short() -> None:
    ledger = cluster(3, 4)
    assert plan(ledger, slots(2, 2, 2, 2), names(ledger)) == Shortfall(3, 4, Short(CPU, asked=2, free=1))
    assert plan(ledger, slots(1), []) == Shortfall(0, 1, None)
    assert plan(ledger, slots(1, accepts=lambda node: False), names(ledger)) == Shortfall(0, 1, None)
    assert plan(ledger, slots(1), [NodeName("unknown")]) == Shortfall(0, 1, Short(CPU, asked=1, free=0))
    assert plan(ledger, [], names(ledger)) == {}


def test_the_shortage_named_is_the_one_of_most_nodes_and_the_most_that_any_of_them_has() -> None:
    ledger = ledger_of({"n1": {"cpu": 1, GPU: 8}, "n2": {"cpu": 9, GPU: 1}, "n3": {"cpu": 9, GPU: 2}})
    one = Slot(Holder("s"), units({"cpu": 4, GPU: 4}))
    assert plan(ledger, [one], names(ledger)) == Shortfall(0, 1, Short(GPU, asked=4, free=2), others=(CPU,))
    ledger = ledger_of({"n1": {"cpu": 1, GPU: 8}, "n2": {"cpu": 3, GPU: 8}, "n3": {"cpu": 9, GPU: 2}})
    assert plan(ledger, [one], names(ledger)) == Shortfall(0, 1, Short(CPU, asked=4, free=3), others=(GPU,))


def test_a_slot_goes_only_where_it_is_accepted() -> None:
    ledger = cluster(2, 2, 2)
    assert plan(ledger, slots(1, 1, 1, accepts=lambda node: node != "n2"), names(ledger)) == {
        "s0": "n1",
        "s1": "n3",
        "s2": "n1",
    }


def test_what_the_gangs_former_plan_holds_counts_as_free() -> None:
    ledger = cluster(2, 2)
    ledger.commit([slot("old1", "n1", {"cpu": 2}), slot("old2", "n2", {"cpu": 1}), slot("s0", "n2", {"cpu": 1})])
    assert isinstance(plan(ledger, slots(2, 2), names(ledger)), Shortfall)
    former = [Holder("old1"), Holder("old2"), Holder("nobody")]
    assert plan(ledger, slots(2, 2), names(ledger), releasing=former) == {"s0": "n1", "s1": "n2"}


def test_what_is_bound_is_never_counted_as_free() -> None:
    ledger = cluster(2)
    ledger.confirm(PodUid("s0"), on=NodeName("n1"), units=units(cpu=2))
    assert isinstance(plan(ledger, slots(2), names(ledger), releasing=[Holder("s0")]), Shortfall)


def test_the_largest_slots_are_placed_first() -> None:
    ledger = cluster(2, 8)
    small_and_large = [Slot(Holder("small"), units(cpu=2)), Slot(Holder("large"), units(cpu=8))]
    assert plan(ledger, small_and_large, [NodeName("n2"), NodeName("n1")]) == {"small": "n1", "large": "n2"}
    assert plan(ledger, slots(1, 9), names(ledger)) == Shortfall(0, 2, Short(CPU, asked=9, free=8))


def test_slots_of_all_sizes_are_spread_together() -> None:
    ledger = cluster(4, 4, 4)
    assert plan(ledger, slots(1, 2, 1, 1), names(ledger)) == {"s0": "n2", "s1": "n1", "s2": "n3", "s3": "n1"}
    tight = cluster(1, 4)
    assert plan(tight, slots(4, 1), names(tight)) == {"s0": "n2", "s1": "n1"}


def test_slots_of_one_size_that_accept_different_nodes_are_told_apart() -> None:
    ledger = cluster(1, 1)
    apart = [Slot(Holder(node), units(cpu=1), {node}.__contains__) for node in ("n2", "n1")]
    assert plan(ledger, apart, names(ledger)) == {"n2": "n2", "n1": "n1"}


def test_of_slots_of_one_size_the_choosy_are_placed_first_and_the_rest_spread_around_them() -> None:
    ledger = cluster(1, 9, 9)
    choosy = Slot(Holder("choosy"), units(cpu=1), lambda node: node == "n1")
    assert plan(ledger, [*slots(1, 1), choosy], names(ledger)) == {"s0": "n2", "s1": "n3", "choosy": "n1"}


def test_a_candidate_named_twice_is_one_node() -> None:
    ledger = cluster(3)
    twice = names(ledger) * 2
    assert plan(ledger, slots(2, 1, 1), twice) == Shortfall(2, 3, Short(CPU, asked=1, free=0))
    assert plan(ledger, slots(1, 1, 1, 1), twice) == Shortfall(3, 4, Short(CPU, asked=1, free=0))


def test_where_spreading_fails_slots_are_packed_tightly() -> None:
    ledger = cluster(6, 6)
    found = plan(ledger, slots(3, 3, 2, 2, 2), names(ledger))
    assert found == {"s0": "n1", "s1": "n1", "s2": "n2", "s3": "n2", "s4": "n2"}
    ledger = cluster(4, 3)
    assert plan(ledger, slots(3, 2, 2), names(ledger)) == {"s0": "n2", "s1": "n1", "s2": "n1"}


def test_the_tightest_nodes_are_packed_first() -> None:
    ledger = cluster(6, 4, 4)
    found = plan(ledger, slots(4, 3, 3, 4), names(ledger))
    assert found == {"s0": "n2", "s1": "n1", "s2": "n1", "s3": "n3"}


def test_where_packing_fails_too_each_next_slot_is_the_one_with_the_least_choice_left() -> None:
    ledger = ledger_of({"n1": {"cpu": 1}, "n2": {"cpu": 5, GPU: 2}, "n3": {"cpu": 1, GPU: 4}})
    wanted = [Slot(Holder(f"s{index}"), units({"cpu": 1, GPU: gpus})) for index, gpus in enumerate((1, 1, 2))]
    assert plan(ledger, wanted, names(ledger)) == {"s0": "n2", "s1": "n2", "s2": "n3"}
    ledger = cluster(6, 8, 7, 4)
    few = {"n1", "n4"}.__contains__
    choosy = [Slot(Holder(f"choosy{index}"), units(cpu=3), few) for index in range(2)]
    found = plan(ledger, [*slots(4, 4, 4, 4), *choosy], names(ledger))
    assert isinstance(found, dict)
    assert commits(ledger, [*slots(4, 4, 4, 4), *choosy], found, [])


@pytest.mark.parametrize(("steps", "found"), [(12, True), (11, False)])
def test_that_is_tried_only_where_it_takes_few_steps(steps: int, found: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three slots, and two nodes with room for each of two templates."""
    monkeypatch.setattr(packing, "_MOST_STEPS", steps)
    ledger = ledger_of({"n1": {"cpu": 1}, "n2": {"cpu": 5, GPU: 2}, "n3": {"cpu": 1, GPU: 4}})
    wanted = [Slot(Holder(f"s{index}"), units({"cpu": 1, GPU: gpus})) for index, gpus in enumerate((1, 1, 2))]
    assert isinstance(plan(ledger, wanted, names(ledger)), dict) is found


def test_and_it_goes_where_fewest_others_could() -> None:
    ledger = cluster(8, 8, 1, 2)
    few = {"n1", "n4"}.__contains__
    choosy = [Slot(Holder(f"choosy{index}"), units(cpu=2), few) for index in range(2)]
    found = plan(ledger, [*slots(4, 4, 4), *choosy], names(ledger))
    assert isinstance(found, dict)
    assert {found[each.holder] for each in choosy} == {"n1", "n4"}


def test_a_node_that_holds_more_than_it_has_is_no_place_to_pack() -> None:
    ledger = cluster(1, 6, 6)
    ledger.confirm(PodUid("pod"), on=NodeName("n1"), units=units(cpu=9))
    found = plan(ledger, slots(3, 3, 2, 2, 2), names(ledger))
    assert found == {"s0": "n2", "s1": "n2", "s2": "n3", "s3": "n3", "s4": "n3"}


def test_where_the_choosy_are_few_they_are_placed_before_the_large() -> None:
    ledger = cluster(3, 3)
    only_n1 = Slot(Holder("choosy"), units(cpu=1), lambda node: node == "n1")
    assert plan(ledger, [*slots(3), only_n1], names(ledger)) == {"s0": "n2", "choosy": "n1"}


def test_several_templates_of_which_one_alone_does_not_fit_are_told_so() -> None:
    ledger = cluster(6, 6)
    picky = Slot(Holder("picky"), units(cpu=1), lambda node: False)
    assert plan(ledger, [*slots(3, 3), picky], names(ledger)) == Shortfall(2, 3, None)
    assert plan(ledger, slots(7, 1), names(ledger)) == Shortfall(0, 2, Short(CPU, asked=7, free=6))
    unknown = [*names(ledger), NodeName("unknown")]
    assert plan(ledger, slots(5, 5, 4), unknown) == Shortfall(2, 3, Short(CPU, asked=4, free=1))


def test_the_limit_a_plan_for_different_slots_can_be_missed() -> None:
    ledger = cluster(4, 6)
    assert brute_force(ledger, slots(3, 3, 2, 2), names(ledger)), "2+2 on n1, 3+3 on n2"
    assert isinstance(plan(ledger, slots(3, 3, 2, 2), names(ledger)), Shortfall)


# -- against every possible plan -------------------------------------------------------------------------------------


def brute_force(ledger: Ledger, wanted: Sequence[Slot], candidates: Sequence[NodeName]) -> bool:
    """Whether any assignment of slots to nodes fits, by trying them all."""
    resources = {resource for one in wanted for resource in one.units}
    for nodes in itertools.product(candidates, repeat=len(wanted)):
        pairs = list(zip(wanted, nodes, strict=True))
        if all(one.accepts is None or one.accepts(node) for one, node in pairs) and all(
            sum(one.units.get(resource, 0) for one, at in pairs if at == node)
            <= max(0, ledger.rows.free(node, resource))
            for node in candidates
            for resource in resources
        ):
            return True
    return False


def commits(ledger: Ledger, wanted: Sequence[Slot], found: dict[Holder, NodeName], releasing: list[Holder]) -> bool:
    owner = GangKey("default", "train")
    claims = [Holding(s.holder, found[s.holder], s.units, HoldingKind.RESERVATION, owner, NOW) for s in wanted]
    outcome = ledger.commit(claims, releasing=releasing)
    return not outcome.conflicts and not ledger_audit.violations(ledger)


rows = st.lists(
    st.fixed_dictionaries({"cpu": st.integers(0, 5)}, optional={GPU: st.integers(0, 3)}), min_size=1, max_size=3
)
vectors = st.fixed_dictionaries({CPU: st.integers(0, 3)}, optional={GPU: st.integers(0, 2)})
choices = st.sets(st.sampled_from(["n0", "n1", "n2"]), min_size=1)
taken = st.lists(st.tuples(st.sampled_from(["n0", "n1", "n2"]), st.integers(0, 4), st.booleans()), max_size=3)


def crowded(has: list[dict[str, int]], held: list[tuple[str, int, bool]]) -> tuple[Ledger, list[Holder]]:
    """A ledger in use, capacity exceeded by facts perhaps; and what the gang's former plan holds of it."""
    ledger = ledger_of({f"n{index}": row for index, row in enumerate(has)})
    former: list[Holder] = []
    for index, (node, cpu, ours) in enumerate(held):
        if ours and not ledger.commit([slot(f"old{index}", node, {"cpu": cpu})]).conflicts:
            former.append(Holder(f"old{index}"))
        elif not ours:
            ledger.confirm(PodUid(f"pod{index}"), on=NodeName(node), units=units(cpu=cpu))
    return ledger, former


@given(rows, taken, vectors, st.integers(1, 5), st.none() | choices)
@example([{"cpu": 5}, {"cpu": 1}], [("n0", 4, True)], {CPU: 3}, 1, None)
def test_for_slots_that_are_alike_a_plan_is_found_exactly_if_there_is_one(
    has: list[dict[str, int]],
    held: list[tuple[str, int, bool]],
    vector: dict[ResourceKey, int],
    number: int,
    only: set[str] | None,
) -> None:
    ledger, former = crowded(has, held)
    accepts = None if only is None else only.__contains__
    wanted = [Slot(Holder(f"s{index}"), dict(vector), accepts) for index in range(number)]
    candidates = names(ledger)
    found = plan(ledger, wanted, candidates, releasing=former)
    without, _ = crowded(has, held)
    for holder in former:
        without.release(holder)
    assert isinstance(found, dict) is brute_force(without, wanted, candidates)
    if isinstance(found, Shortfall):
        assert (found.asked, found.placed < number) == (number, True)
        assert found.placed == 0 or brute_force(without, wanted[: found.placed], candidates)
        assert not brute_force(without, wanted[: found.placed + 1], candidates)
    else:
        assert list(found) == [one.holder for one in wanted]
        assert all(accepts is None or accepts(node) for node in found.values())
        assert commits(ledger, wanted, found, former)


@given(rows, taken, st.lists(st.tuples(vectors, st.none() | choices), min_size=1, max_size=5))
def test_for_slots_that_differ_a_plan_that_is_found_commits_and_none_is_invented(
    has: list[dict[str, int]],
    held: list[tuple[str, int, bool]],
    wishes: list[tuple[dict[ResourceKey, int], set[str] | None]],
) -> None:
    ledger, former = crowded(has, held)
    wanted = [
        Slot(Holder(f"s{index}"), vector, None if only is None else only.__contains__)
        for index, (vector, only) in enumerate(wishes)
    ]
    found = plan(ledger, wanted, names(ledger), releasing=former)
    if isinstance(found, dict):
        assert all(one.accepts is None or one.accepts(found[one.holder]) for one in wanted)
        assert commits(ledger, wanted, found, former)


@pytest.mark.parametrize("number", [1, 63, 64, 65])
def test_a_gang_on_a_large_cluster_touches_a_node_a_slot(number: int) -> None:
    ledger = cluster(*[8] * 200)
    asked: list[NodeName] = []

    def accepts(node: NodeName) -> bool:
        asked.append(node)
        return True

    found = plan(ledger, slots(*[1] * number, accepts=accepts), names(ledger))
    assert isinstance(found, dict)
    assert len(set(found.values())) == len(asked) == number


# -- few nodes for each -----------------------------------------------------------------------------------------------


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[NodeName]:
    """At which nodes it was looked for room."""
    found: list[NodeName] = []
    lacking = Room.lacking

    def counted(room: Room, node: NodeName, need: Asked) -> tuple[ResourceKey, int, int] | None:
        found.append(node)
        return lacking(room, node, need)

    monkeypatch.setattr(Room, "lacking", counted)
    return found


def test_slots_that_accept_few_nodes_are_looked_at_on_these_alone(looks: list[NodeName]) -> None:
    ledger = cluster(*(1 for _ in range(200)))
    pinned = [
        Slot(Holder(f"s{number}"), units(cpu=1), f"n{number}".__eq__, only=frozenset({NodeName(f"n{number}")}))
        for number in range(200, 100, -1)
    ]
    found = plan(ledger, pinned, names(ledger))
    assert found == {slot.holder: f"n{slot.holder[1:]}" for slot in pinned}
    assert len(looks) == 100
    looks.clear()
    ledger.confirm(PodUid("pod"), on=NodeName("n150"), units=units(cpu=1))
    assert plan(ledger, pinned, names(ledger)) == Shortfall(50, 100, Short(CPU, asked=1, free=0))
    assert len(looks) == 51
    # A node is no candidate for being the only one.
    assert plan(ledger, pinned[:1], names(ledger)[:100]) == Shortfall(0, 1, None)


# -- many templates ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", range(0, 300, 100))
def test_of_many_kinds_arrays_say_what_is_said_node_by_node(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(first, first + 100):
        found: list[object] = []
        for few in (0, 10**9):
            monkeypatch.setattr(room, "FEW_TEMPLATES", few)
            found.append(_of_many_kinds(Random(seed)))
        assert found[0] == found[1], seed


def _of_many_kinds(random: Random) -> list[object]:
    """Plans and aims of a random gang on a random ledger, of which some is held."""
    nodes, size = random.choice((1, 6, 30, 150)), random.choice((3, 12, 1000))
    having = {f"n{n}": {key: random.randint(0, 3 * size) for key in ("cpu", "memory", "gpu")} for n in range(nodes)}
    ledger = ledger_of(having)
    there = names(ledger)
    for node in random.sample(there, nodes // 3):
        ledger.confirm(PodUid(f"pod-{node}"), on=node, units=units(cpu=random.randint(0, 3 * size)))
    some = frozenset(random.sample(there, nodes // 2))
    wanted: list[Slot] = []
    for kind in range(random.choice((2, 9, 25))):
        least = random.choice((0, 1))
        asks = units({key: random.randint(least, size) for key in random.sample(("cpu", "memory", "gpu"), 2)})
        accepts, only = random.choice(((None, None), (None, None), (_AcceptsOf(some), None), (_AcceptsOf(some), some)))
        wanted += [Slot(Holder(f"{kind}-{n}"), asks, accepts, only) for n in range(random.choice((1, 1, 4)))]
    random.shuffle(wanted)
    candidates = [*random.sample(there, random.randint(1, nodes)), there[0], NodeName("unknown")]
    ever = {node: units(cpu=random.randint(0, size)) for node in there}
    plans = [plan(ledger, wanted, candidates, filling=filling) for filling in (False, True)]
    return [*plans, aim(ledger, wanted, candidates, lambda node: ever.get(node, {}))]


@dataclass(frozen=True)
class _AcceptsOf:
    nodes: frozenset[NodeName]

    def __call__(self, name: NodeName) -> bool:
        return name in self.nodes


def test_slots_that_have_no_room_together_are_not_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them fits on many nodes, but on each node there is room for one, and there are too few nodes."""
    packed: list[int] = []
    monkeypatch.setattr(packing, "_offer", lambda *args: packed.append(1))
    ledger = cluster(*[30] * 19)
    assert plan(ledger, slots(*range(16, 36 - 5), *[16] * 5), names(ledger)) == Shortfall(19, 20, Short(CPU, 16, 14))
    assert not packed
