"""How gangs are planned where one slot after the other does not do: by every way if few, else in other orders."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.core.affinity.affinity_rules import MOST_RULES, TOO_MANY
from extender.core.affinity.constraints import Constraints, HostPort
from extender.core.affinity.pod_affinity_index import Around
from extender.core.cluster import Pod
from extender.core.gangs.placement import affinity_packing as together
from extender.core.gangs.state.bin_packing import Shortfall
from extender.core.gangs.state.trial_snapshot import Room, Slot
from extender.core.ledger.ledger import Holder
from extender.core.policies.policy_types import HOSTNAME
from extender.kube.names import CPU, NodeName, PodUid, ResourceKey
from tests.builders import node
from tests.core.town import ZONE, Town, apart, even, members, near, ports


class TestEveryWay:
    """Of few slots on few nodes, where one after the other does not do."""

    def near_their_own(self) -> list[Pod]:
        """The second may go anywhere only while nobody whom it wants to be near is there."""
        [first], [second] = members(1, None, 5000, "web"), members(1, near(app="web"), 5000, "web")
        return [first, replace(second, name="second", uid=PodUid("uid-second"))]

    def test_the_order_may_be_another(self) -> None:
        found = Town("ba").plan(self.near_their_own())
        assert isinstance(found, dict)
        assert list(found) == ["uid-second", "uid-web-0"]

    def test_a_node_that_is_refused_is_not_the_last(self) -> None:
        town = Town("ba")
        town.fill("n0", 3000)
        [first, second] = self.near_their_own()
        found = town.plan([replace(first, requests={**first.requests, CPU: 8000}), second])
        assert found == {"uid-second": "n0", "uid-web-0": "n1"}

    def test_of_two_that_want_to_be_near_each_other_the_one_whose_other_is_there_comes_first(self) -> None:
        town = Town("a", cpu=64000)
        town.put("train-x", "n0")
        found = town.plan([*members(1, near(app="web")), *members(1, near(app="train"), app="web")])
        assert isinstance(found, dict)
        assert list(found) == ["uid-web-0", "uid-train-0"]

    def test_slots_that_fill_nodes_to_the_last_are_put_together(self) -> None:
        sizes = (4000, 3000, 3000, 2000, 2000, 2000)
        gang = [each for n, cpu in enumerate(sizes) for each in members(1, ports(n + 1), cpu, f"m{n}")]
        assert not isinstance(Town("ab").plan(gang), Shortfall)
        assert isinstance(Town("ab").plan([*gang, *members(1, None, 1000)]), Shortfall)

    def test_only_nodes_that_accept_them_are_taken(self) -> None:
        town = Town("abb")
        town.fill("n1", 3000)
        gang = [replace(each, node_selector={ZONE: "b"}) for each in self.near_their_own()]
        assert set(town.zones(gang)) == {"b"}
        town.fill("n2", 4000)
        assert isinstance(town.plan(gang), Shortfall)

    def test_is_tried_of_two_slots_on_up_to_32_nodes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for useless, tried in ((30, True), (31, False)):
            monkeypatch.setattr(Town, "useless", useless)
            assert isinstance(Town("ba").plan(self.near_their_own()), dict) is tried

    @pytest.mark.parametrize(("most", "found"), [(9, True), (8, False), (3, False)])
    def test_is_given_up_after_so_many_steps(self, most: int, found: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each slot that is tried on a node is one: six with the first as the first, three with the second."""
        monkeypatch.setattr(together, "_MOST_STEPS", most)
        assert isinstance(Town("ba").plan(self.near_their_own()), dict) is found


class TestTooManyForEveryWay:
    """Slots x nodes are more than those for which every order and node is tried."""

    def test_the_first_has_its_choice_before_larger_ones_and_before_who_wants_to_be_near_others(self) -> None:
        town = Town("abba" + "-" * 40)
        town.fill("n2", 7000)
        town.fill("n3", 500)
        for number in range(4, 44):
            town.fill(f"n{number}", 8000)
        [small] = members(1, None, 1000, "small")
        gang = [
            replace(small, node_selector={"host": "n0"}),
            *members(1, Constraints((HostPort(80),), near(app="large").affinity), 1000, "shy"),
            *members(1, None, 7500, "medium"),
            *members(1, None, 8000, "large"),
        ]
        assert town.plan(gang) == {
            "uid-small-0": "n0",
            "uid-large-0": "n1",
            "uid-medium-0": "n3",
            "uid-shy-0": "n2",
        }

    def test_the_largest_are_placed_first_where_they_find_no_room_after_the_others(self) -> None:
        town = Town("a" * 40)
        town.fill("n1", 5000)
        for number in range(2, 40):
            town.fill(f"n{number}", 8000)
        gang = [*members(1, None, 3000, "small"), *members(1, None, 8000, "large")]
        assert town.plan(gang) == {"uid-large-0": "n0", "uid-small-0": "n1"}

    def test_the_largest_are_those_that_ask_for_the_largest_part_of_what_all_ask_for(self) -> None:
        town, gpu = Town("a" * 40), ResourceKey("amd.com/gpu")
        for number in range(2, 40):
            town.fill(f"n{number}", 8000)
        town.fill("n0", 4500)
        town.ledger.capacity.set_node(NodeName("n0"), {**town.nodes[NodeName("n0")].allocatable, gpu: 1})
        town.nodes[NodeName("n0")] = node("n0", {**town.ledger.rows[NodeName("n0")].capacity})
        [small], [large] = members(1, None, 3000, "small"), members(1, None, 1000, "large")
        large = replace(large, requests={**large.requests, gpu: 1})
        assert town.plan([small, large]) == {"uid-large-0": "n0", "uid-small-0": "n1"}

    def test_who_wants_to_be_near_others_comes_after_them(self) -> None:
        town = Town("ab" * 35)
        gang = [*members(2, near(app="web"), 1000), *members(1, None, 1000, "web")]
        assert len(set(town.zones(gang))) == 1

    def test_only_nodes_that_accept_them_are_taken(self) -> None:
        town = Town("a" * 40)
        found = town.plan(members(2, ports(80)), accepts=frozenset(("n20", "n39")).__contains__)
        assert not isinstance(found, Shortfall)
        assert sorted(found.values()) == ["n20", "n39"]

    def test_a_node_that_has_too_many_for_now_is_asked_again(self) -> None:
        town = Town("ab" * 20)
        both = Constraints(spread=(*even("host").spread, *even().spread))
        assert town.zones(members(80, both, 1000)) == "a" * 40 + "b" * 40
        # Until each of the others has one as well.
        town.put("train-x", "n0", cpu=4000)
        assert town.zones(members(79, both, 4000)) == "a" * 39 + "b" * 40

    def test_of_two_zones_the_one_that_could_hold_fewer_of_all_of_them(self) -> None:
        town = Town("bbba" + "-" * 40)
        for name, cpu in (("n0", 6000), ("n1", 6000), ("n2", 4000)):
            town.fill(name, cpu)
        gang = [*members(2, near(), 1000), *members(1, near(), 4000, "train-large")]
        gang[2] = replace(gang[2], labels={"app": "train"})
        # Seven of the small ones or one of the large in b, and three or two in a.
        assert town.zones(gang) == "aaa"


class TestBounded:
    """A plan is one step of the event loop, and tenants say how large it is."""

    def test_no_more_nodes_are_looked_at_than_a_step_allows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each member has terms of its own, so each looks at all nodes from the first."""
        town, looked_at = Town("a"), list[str]()
        monkeypatch.setattr(together, "_MOST_LOOKS", 300)
        for number in range(1, 400):
            town.add(node(f"n{number}", {"cpu": 1000}))
        may_be_on = together._Template.may_be_on

        def counted(template: together._Template, name: NodeName) -> bool:
            looked_at.append(name)
            return may_be_on(template, name)

        monkeypatch.setattr(together._Template, "may_be_on", counted)
        gang = [each for n in range(40) for each in members(1, apart("host", f"m{n}"), 2000, f"m{n}")]
        found = town.plan(gang)
        assert isinstance(found, Shortfall)
        assert (found.rule, found.unsure) == (together.TOO_LARGE, True)
        assert found.placed == 4
        assert len(looked_at) <= 300

    def test_a_look_costs_more_of_a_pod_that_more_rules_are_about(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(together, "_MOST_LOOKS", 400)
        for rules, found in ((1, True), (100, False)):
            others = tuple(apart("host", f"app-{n}").anti_affinity[0] for n in range(rules))
            gang = members(40, Constraints(anti_affinity=others), 100)
            assert isinstance(Town("a" * 40).plan(gang), dict) is found

    def test_nodes_that_accept_none_of_them_use_up_few_looks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A launcher and workers, each of a pool of its own among 40 racks."""
        monkeypatch.setattr(together, "_MOST_LOOKS", 16_000)
        town = Town("")
        for number in range(2_000):
            rack = number // 50
            pool = {38: "worker", 39: "launcher"}.get(rack, "other")
            town.add(node(f"n{number}", {"cpu": 8000}, labels={"rack": f"r{rack}", "pool": pool}))
        launcher = [replace(each, node_selector={"pool": "launcher"}) for each in members(1, None, app="launcher")]
        workers = [replace(each, node_selector={"pool": "worker"}) for each in members(50, near("rack"))]
        for gang in ([*launcher, *workers], [*workers, *launcher]):
            found = town.plan(gang)
            assert isinstance(found, dict)
            assert {town.nodes[found[Holder(each.uid)]].labels["pool"] for each in workers} == {"worker"}

    def test_what_was_looked_at_at_once_is_what_is_found_one_by_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        gangs = [
            [*members(5, near(), 2000), *members(2, apart("host", "web"), 1000, "web")],
            [*members(9, even("host"), 3000), *members(9, apart("host", "web"), 100, "web")],
        ]
        found = list[object]()
        for looks in (10**6, -1):
            monkeypatch.setattr(together, "_ONE_BY_ONE", looks)
            for gang in gangs:
                town = Town("aabbc" * 3)
                town.fill("n0", 8000)
                town.fill("n4", 6000)
                found.append(town.plan(gang))
        assert found[:2] == found[2:]

    def test_where_there_is_no_room_no_rule_is_asked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nor does that cost more than it would without rules."""
        others = tuple(apart("host", f"app-{n}").anti_affinity[0] for n in range(100))
        gang = members(1, Constraints(anti_affinity=others), 4000)
        town = Town("a" * 300)
        for number in range(299):
            town.fill(f"n{number}", 8000)
        for most, found in ((350, True), (300, False)):
            monkeypatch.setattr(together, "_MOST_LOOKS", most)
            assert isinstance(town.plan(gang), dict) is found

    def test_to_compare_places_leaves_half_of_the_looks_for_tries(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each member asks for something else, and wants to be in one zone with the others."""
        monkeypatch.setattr(together, "_MOST_LOOKS", 520)
        town = Town("ab" * 200, cpu=100_000)
        gang = [each for n in range(50) for each in members(1, near(), 100 + n, f"m{n}")]
        gang = [replace(each, labels={"app": "train"}) for each in gang]
        assert len(set(town.zones(gang))) == 1

    def test_a_thousand_members_on_thousands_of_nodes_are_far_below_the_limit(self) -> None:
        town = Town("ab" * 2_500, cpu=1000)
        half = [*members(500, apart("host"), 1000), *members(500, near("zone", app="web"), 900, "web")]
        assert len(set(town.zones(half))) in (1, 2)

    def test_more_rules_than_a_plan_looks_at_are_refused_by_name(self) -> None:
        def of(terms: int, spreads: int = 0) -> list[Pod]:
            spread = tuple(even(f"key-{n}").spread[0] for n in range(spreads))
            one = [replace(each, constraints=Constraints(spread=spread)) for each in members(1, None, 1, "even")]
            return [each for n in range(terms) for each in members(1, apart("host", f"m{n}"), 1, f"m{n}")] + one

        town = Town("a")
        for gang in (of(MOST_RULES + 1), of(1, MOST_RULES // 4), of(MOST_RULES - 3, 1)):
            assert town.plan(gang) == Shortfall(0, len(gang), None, TOO_MANY, unsure=True)
        assert isinstance(Town("aa").plan(of(MOST_RULES)), dict)
        # Those that all have are looked at once.
        assert isinstance(town.plan(members(100, apart("host", "other"), 1)), dict)

    def test_what_was_placed_in_vain_is_not_placed_again_in_another_order(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Five that are alike, and of each other's kind none beside another: four nodes are as many as there are ways
        to choose them, not to order them."""
        steps, place = list[str](), together._Attempt._place

        def counted(attempt: together._Attempt, template: together._Template, name: NodeName, by: int = 1) -> None:
            steps.append(name)
            place(attempt, template, name, by)

        monkeypatch.setattr(together._Attempt, "_place", counted)
        assert isinstance(
            Town("abcd").plan([*members(5, apart("host"), 1), *members(1, near("host"), 1, "web")]), Shortfall
        )
        assert len(steps) < 300

    def test_members_that_each_name_a_node_look_at_it_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(together, "_MOST_LOOKS", 1_000)
        monkeypatch.setattr(Town, "useless", 100)
        gang = [replace(each, node_selector={HOSTNAME: f"n{n}"}) for n, each in enumerate(members(100, apart("host")))]
        town, seats = Town("a" * 100), list[together.Seat]()
        for number, each in enumerate(gang):
            at = NodeName(f"n{number}")
            seats.append(together.Seat(Slot(Holder(each.uid), each.requests, at.__eq__, frozenset({at})), each))
        room, around = Room(town.ledger, ()), Around(town.pod_affinity)
        found = together.plan(room, seats, list(town.nodes), town.nodes, around)
        assert found == {Holder(each.uid): f"n{number}" for number, each in enumerate(gang)}
