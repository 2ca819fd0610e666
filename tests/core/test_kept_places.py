"""Places that are kept for gangs: an ordinary pod is refused where one would be lost by it, and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from extender.core.affinity.constraints import Constraints, HostPort, Peers, Spread
from extender.core.cluster import Node, Pod
from extender.core.gang_ask import GangAsk
from extender.core.gangs.kept_places import KeptPlaces
from extender.core.gangs.state.gang import Gang
from extender.core.gangs.state.gang_store import GangStore
from extender.core.ledger.ledger import Holder, Holding, HoldingKind
from extender.core.names import GangKey
from extender.kube.label_match import LabelRequirement
from extender.kube.names import NodeName, PodUid
from tests.builders import NOW, pod
from tests.core.naive_neighbours import lets_beside
from tests.core.town import ZONE, Town, apart, near, ports, term

KEY = GangKey("default", "train")
UNITS = {"cpu": 1}


class Kept(Town):
    """A town with places that are kept for one gang."""

    def __init__(self, zones: str) -> None:
        super().__init__(zones)
        self.table = GangStore()
        self.places = KeptPlaces(self.ledger, self.nodes, self.pod_affinity, self.table, 0.25)
        self.kept: list[tuple[Pod, Node]] = []

    def keep(self, member: Pod, on: str, kind: HoldingKind = HoldingKind.RESERVATION) -> Holder:
        ask = GangAsk(KEY, 1, 4.0)
        member = replace(member, gang=ask)
        gang: Gang = self.table.join(member.uid, ask, NOW)
        gang.roster.take(member)
        self.pod_affinity.put(member)
        name = f"saved:{KEY}#{member.uid}" if kind is HoldingKind.SAVING else member.uid
        units = {} if kind is HoldingKind.SAVING else dict(member.requests)
        claim = Holding(Holder(name), NodeName(on), units, kind, KEY, NOW + 60)
        assert not self.ledger.commit([claim]).conflicts
        self.kept.append((member, self.nodes[NodeName(on)]))
        return claim.holder

    def refused(self, comer: Pod, giving_way: Sequence[Holder] = ()) -> str:
        """The nodes on which the pod would take a place away, by number."""
        takes = self.places.takes(comer, giving_way)
        return "".join(name[1:] for name in self.nodes if takes is not None and takes(name))

    def feasible(self, beside: Sequence[tuple[Pod, Node]] = ()) -> bool:
        """Whether there is an order in which kube-scheduler would let all members to their places. The slow way."""
        nodes = list(self.nodes.values())
        for order in permutations(self.kept):
            standing = [*self.there, *beside]
            for member, at in order:
                if not lets_beside(member, at, standing, nodes):
                    break
                standing.append((member, at))
            else:
                return True
        return False


def member(number: int, constraints: Constraints | None, app: str = "train") -> Pod:
    return pod(f"train-{number}", UNITS, labels={"app": app}, constraints=constraints)


def comer(constraints: Constraints | None = None, app: str = "web", namespace: str = "default") -> Pod:
    return pod("comer", UNITS, namespace=namespace, labels={"app": app}, constraints=constraints)


@pytest.mark.parametrize("kind", [HoldingKind.RESERVATION, HoldingKind.SAVING])
def test_a_host_port_is_kept_on_its_node(kind: HoldingKind) -> None:
    town = Kept("aab")
    town.keep(member(0, ports(80)), "n1", kind)
    assert (town.refused(comer(ports(80))), town.refused(comer(ports(81))), town.refused(comer())) == ("1", "", "")


def test_by_protocol_and_address_as_kube_scheduler_does() -> None:
    town = Kept("a")
    town.keep(member(0, Constraints(host_ports=(HostPort(80, "TCP", "10.0.0.1"),))), "n0")
    asked = [HostPort(80), HostPort(80, "UDP"), HostPort(80, "TCP", "10.0.0.1"), HostPort(80, "TCP", "10.0.0.2")]
    assert [town.refused(comer(Constraints(host_ports=(each,)))) for each in asked] == ["0", "", "0", ""]


def test_anti_affinity_keeps_a_whole_domain_whoever_has_it() -> None:
    town = Kept("aab")
    town.keep(member(0, apart(ZONE, "web")), "n0")
    assert (town.refused(comer()), town.refused(comer(app="other"))) == ("01", "")
    town = Kept("aab")
    town.keep(member(0, None), "n0")
    assert (town.refused(comer(apart(ZONE, "train"))), town.refused(comer(apart("host", "train")))) == ("01", "0")


def test_not_one_too_many_for_a_members_spread() -> None:
    town = Kept("aab")
    town.put("train-there", "n2")
    town.keep(member(0, Constraints(spread=(spread(),))), "n0")
    # With another in a there would be two beside one.
    assert (town.refused(comer(app="train")), town.refused(comer())) == ("", "")
    town.put("train-too", "n1")
    assert town.refused(comer(app="train")) == "01"


def test_nor_the_first_of_those_that_the_first_of_a_series_wants_to_be_near() -> None:
    town = Kept("aab")
    town.keep(member(0, near(ZONE)), "n0")
    assert (town.refused(comer(app="train")), town.refused(comer())) == ("2", "")
    town.put("train-there", "n1")
    assert town.refused(comer(app="train")) == ""


def test_what_gives_way_and_what_is_only_intended_keeps_nobody_off() -> None:
    town = Kept("ab")
    saved = town.keep(member(0, ports(80)), "n0", HoldingKind.SAVING)
    assert town.refused(comer(ports(80)), [saved]) == ""
    town = Kept("ab")
    town.keep(replace(member(0, ports(80)), requests={}), "n0")
    assert town.refused(comer(ports(80))) == ""


def test_a_place_that_moves_or_is_given_up_is_kept_no_more_where_it_was() -> None:
    town = Kept("abc")
    held = town.keep(member(0, ports(80)), "n0")
    assert town.refused(comer(ports(80))) == "0"
    for after in ("n1", "n0", "n2"):
        [before] = town.ledger.held_for(KEY)
        town.ledger.commit([replace(before, node=NodeName(after))])
        assert town.refused(comer(ports(80))) == after[1:]
    town.ledger.release(held)
    assert town.refused(comer(ports(80))) == ""
    places = town.places
    assert (places._on, places._of, places._like, places._drawn) == ({}, {}, {}, {})


def test_a_member_that_looks_otherwise_is_kept_a_place_for_as_it_looks_now() -> None:
    town = Kept("ab")
    town.keep(member(0, None), "n0")
    assert town.refused(comer(ports(80))) == ""
    gang = town.table.by_key[KEY]
    now = replace(gang.roster.members[PodUid("uid-train-0")], constraints=ports(80))
    gang.roster.take(now)
    town.places.observe(now)
    assert town.refused(comer(ports(80))) == "0"


def test_members_of_gangs_are_not_asked_for_their_plans_keep_to_it() -> None:
    town = Kept("ab")
    town.keep(member(0, ports(80)), "n0")
    asking = replace(comer(ports(80)), gang=GangAsk(GangKey("default", "other"), 1, 4.0))
    assert town.refused(asking) == ""


def test_who_was_kept_from_a_whole_domain_is_woken_once_when_the_place_is_kept_no_more() -> None:
    town = Kept("aab")
    held = town.keep(member(0, apart(ZONE, "web")), "n0")
    assert town.refused(comer()) == "01"
    assert town.places.take_freed() == []
    town.ledger.release(held)
    assert town.places.take_freed() == [comer()]
    assert town.places.take_freed() == []


# -- by a slow twin ----------------------------------------------------------------------------------------------------


def spread(app: str = "train", key: str = ZONE, skew: int = 1) -> Spread:
    return Spread(Peers(frozenset({"default"}), (LabelRequirement("app", "In", (app,)),)), key, skew)


apps = st.sampled_from(["train", "web"])
keys = st.sampled_from([ZONE, "host"])
of_ports = st.lists(
    st.builds(
        HostPort, st.sampled_from([80, 81]), st.sampled_from(["TCP", "UDP"]), st.sampled_from(["0.0.0.0", "::1"])
    ),
    max_size=2,
).map(tuple)
terms = st.lists(st.builds(term, keys, apps), max_size=1).map(tuple)
pairwise = st.builds(lambda p, a: Constraints(host_ports=p, anti_affinity=a), of_ports, terms)
of_members = st.one_of(
    pairwise,
    st.builds(lambda s: Constraints(spread=(s,)), st.builds(spread, apps, keys)),
    st.builds(lambda t: Constraints(affinity=(t,)), st.builds(term, keys, apps)),
    st.none(),
)


def bare(constraints: Constraints | None) -> Constraints | None:
    return constraints if constraints else None


@settings(max_examples=150, deadline=None)
@given(
    zones=st.sampled_from(["aab", "abc", "aabb", "a-b", "ab"]),
    likeness=of_members,
    unlike=st.none() | pairwise,
    app=apps,
    places=st.lists(st.integers(0, 3), min_size=1, max_size=3),
    there=st.lists(st.tuples(st.integers(0, 3), apps, pairwise), max_size=3),
    comes=st.tuples(apps, pairwise),
)
def test_a_pod_is_refused_where_and_only_where_the_gangs_places_are_lost_by_it(
    zones: str,
    likeness: Constraints | None,
    unlike: Constraints | None,
    app: str,
    places: list[int],
    there: list[tuple[int, str, Constraints]],
    comes: tuple[str, Constraints],
) -> None:
    town = Kept(zones)
    for number, (on, label, constraints) in enumerate(there):
        town.put(f"{label}-there{number}", f"n{on % len(zones)}", bare(constraints))
    for number, on in enumerate(places):
        its = likeness if number or unlike is None else unlike
        town.keep(member(number, bare(its), app), f"n{on % len(zones)}")
    assume(town.feasible())
    one = comer(bare(comes[1]), app=comes[0])
    lost = [name for name, node in town.nodes.items() if not town.feasible([(one, node)])]
    assert town.refused(one) == "".join(name[1:] for name in lost)
