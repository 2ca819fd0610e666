"""The policies that come with Escher, one by one: what pods may ask, where they may go, who goes first."""

from __future__ import annotations

from typing import Any

import pytest

from extender.core import policy as seam
from extender.core.cluster import Pod
from extender.core.gangs.gangs import Gangs
from extender.core.ledger.ledger import Ledger
from extender.core.policy import Facts, Policy, Refuse, has
from extender.filters import gang, made
from extender.filters.anti_affinity import GROUP, REASON, AntiAffinity
from extender.filters.gang import gang_policies
from extender.filters.preference import PREFER, Preference
from extender.filters.share_order import SHARE, WEIGHT, ShareOrder
from extender.kube.names import NodeName
from tests.builders import gang_ask, ledger_of, node, pod, slot

N1, N2, N3 = NodeName("n1"), NodeName("n2"), NodeName("n3")
NAMES = [N1, N2, N3]


def facts(*pods: Pod, cpu: int = 8000) -> Facts:
    ledger = ledger_of({name: {"cpu": cpu} for name in NAMES})
    for each in pods:
        if each.node is not None:
            ledger.confirm(each.uid, on=each.node, units=each.requests)
    return Facts(ledger, {name: node(name) for name in NAMES}, {each.uid: each for each in pods})


class TestAntiAffinity:
    def known(self, *pods: Pod) -> tuple[AntiAffinity, Facts]:
        policy = AntiAffinity()
        for each in pods:
            policy.observe(each, 0.0)
        return policy, facts(*pods)

    def passed(self, policy: AntiAffinity, asking: Pod, known: Facts) -> list[NodeName]:
        judge = policy.filter(asking, known)
        return NAMES if judge is None else [name for name in NAMES if judge(name) is None]

    def test_no_node_has_two_of_a_group(self) -> None:
        policy, known = self.known(pod("a", {"cpu": 1}, node=N1, **asking("web")), pod("b", node=N2))
        asks = pod("c", **asking("web"))
        assert self.passed(policy, asks, known) == [N2, N3]
        judge = policy.filter(asks, known)
        assert judge is not None
        assert judge(N1) == Refuse(REASON)

    def test_a_place_that_is_held_counts(self) -> None:
        waiting = pod("a", **asking("web"))
        policy, known = self.known(waiting)
        known.ledger.commit([slot(waiting.uid, N2, {"cpu": 1})])
        assert self.passed(policy, pod("b", **asking("web")), known) == [N1, N3]
        assert self.passed(policy, waiting, known) == NAMES

    def test_groups_are_of_one_namespace(self) -> None:
        policy, known = self.known(pod("a", node=N1, namespace="other", **asking("web")))
        assert self.passed(policy, pod("b", **asking("web")), known) == NAMES

    def test_who_asks_for_nothing_is_none_of_its_business(self) -> None:
        policy, known = self.known(pod("a", node=N1, **asking("web")))
        assert policy.filter(pod("b"), known) is None

    def test_who_leaves_the_group_or_the_cluster_does_not_count(self) -> None:
        first, second = pod("a", node=N1, **asking("web")), pod("b", node=N2, **asking("web"))
        policy, known = self.known(first, second)
        policy.forget(first)
        policy.observe(pod("b", node=N2), 0.0)
        assert self.passed(policy, pod("c", **asking("web")), known) == NAMES

    def test_nodes_are_no_pods(self) -> None:
        policy, known = self.known(pod("a", node=N1, **asking("web")))
        policy.observe(node(N1), 0.0)
        policy.forget(node(N1))
        assert self.passed(policy, pod("b", **asking("web")), known) == [N2, N3]

    @pytest.mark.parametrize("name", ["", "-web", "a b", "x" * 64])
    def test_a_malformed_name_is_told_with_key_and_remedy(self, name: str) -> None:
        said = AntiAffinity().malformed(pod(**asking(name)))
        assert said is not None
        assert (said.field, said.value) == (GROUP, name)
        assert GROUP in said.reason
        assert f'{GROUP}: "web"' in said.remedy

    def test_members_of_gangs_are_told_what_to_use_instead(self) -> None:
        said = AntiAffinity().malformed(pod(gang=gang_ask(), **asking("web")))
        assert said is not None
        assert "podAntiAffinity" in said.reason

    def test_a_name_as_labels_have_them_will_do(self) -> None:
        assert [AntiAffinity().malformed(pod(**asking(name))) for name in ("web", "A.b_c-9", "x" * 63)] == [None] * 3
        assert AntiAffinity().malformed(pod()) is None


def asking(group: str) -> dict[str, Any]:
    return {"annotations": {GROUP: group}}


class TestPreference:
    def scored(self, value: str, **labels: str) -> float:
        policy, asks = Preference(), pod(annotations={PREFER: value})
        assert policy.malformed(asks) is None
        known = Facts(ledger_of({"n1": {}}), {N1: node(N1, labels=labels)})
        scorer = policy.score(asks, known)
        assert scorer is not None
        assert scorer(NodeName("unknown")) == 0
        return scorer(N1)

    @pytest.mark.parametrize(
        ("value", "score"),
        [("disk=ssd", 1), ("disk=hdd", 0), ("disk", 1), ("gpu", 0), ("disk=ssd,zone=b", 0.5), (" disk , zone=a ", 1)],
    )
    def test_the_more_labels_a_node_has_the_better(self, value: str, score: float) -> None:
        assert self.scored(value, disk="ssd", zone="a") == score

    def test_who_asks_for_nothing_prefers_nothing(self) -> None:
        assert Preference().score(pod(), facts()) is None
        assert Preference().malformed(pod()) is None

    @pytest.mark.parametrize("value", ["", "disk=", "disk=ssd,", "=ssd", "a b", "disk==ssd", "-x", "disk=ssd;zone=a"])
    def test_a_malformed_value_is_told_with_an_example(self, value: str) -> None:
        said = Preference().malformed(pod(annotations={PREFER: value}))
        if value == "disk=":
            # A label may be empty.
            assert said is None
            return
        assert said is not None
        assert (said.field, said.value) == (PREFER, value)
        assert "disk=ssd, zone=a" in said.remedy


class TestShareOrder:
    def order(self, policy: ShareOrder, share: str | None, known: Facts) -> float:
        return policy.order([pod("m", **sharing(share))], known)

    def test_the_share_that_uses_least_for_its_weight_goes_first(self) -> None:
        policy, known = ShareOrder(), facts()
        for each in (
            pod("a", {"cpu": 6000}, node=N1, **sharing("research")),
            pod("b", {"cpu": 6000}, node=N2, **sharing("teaching", weight="2")),
            pod("c", {"cpu": 6000}, **sharing("waits")),
        ):
            policy.observe(each, 0.0)
        assert self.order(policy, "research", known) == pytest.approx(6 / 24)
        assert self.order(policy, "teaching", known) == pytest.approx(3 / 24)
        assert [self.order(policy, share, known) for share in ("waits", "nobody", None)] == [0, 0, 0]

    def test_its_dominant_resource_counts(self) -> None:
        policy = ShareOrder()
        ledger = ledger_of({"n1": {"cpu": 1000, "memory": 100}})
        policy.observe(pod("a", {"cpu": 100, "memory": 50}, node=N1, **sharing("s")), 0.0)
        assert self.order(policy, "s", Facts(ledger, {})) == pytest.approx(0.5)

    def test_the_order_is_another_once_somebody_is_bound_or_gone_and_not_before_anybody_asked(self) -> None:
        policy, known = ShareOrder(), facts()
        bound = pod("a", {"cpu": 6000}, node=N1, **sharing("s"))
        policy.observe(bound, 0.0)
        assert policy.order_version == 0
        assert self.order(policy, "s", known) > 0
        policy.observe(bound, 0.0)
        policy.observe(pod("other"), 0.0)
        assert policy.order_version == 0
        policy.forget(bound)
        assert policy.order_version == 1
        assert self.order(policy, "s", known) == 0
        policy.observe(node("n9"), 0.0)
        assert policy.order_version == 2

    @pytest.mark.parametrize("weight", ["0", "1001", "-1", "two", "1.5", "²"])
    def test_a_malformed_weight_is_told(self, weight: str) -> None:
        said = ShareOrder().malformed(pod(**sharing("s", weight)))
        assert said is not None
        assert (said.field, said.value) == (WEIGHT, weight)

    def test_a_malformed_name_is_told(self) -> None:
        said = ShareOrder().malformed(pod(**sharing("a b")))
        assert said is not None
        assert said.field == SHARE

    def test_what_is_well_formed_is(self) -> None:
        assert ShareOrder().malformed(pod(**sharing("s", "1000"))) is None
        assert ShareOrder().malformed(pod()) is None


def sharing(share: str | None, weight: str | None = None) -> dict[str, Any]:
    said = {SHARE: share, WEIGHT: weight}
    return {"annotations": {key: value for key, value in said.items() if value is not None}}


POINTS = [point for point in vars(seam).values() if getattr(point, "_is_runtime_protocol", False)]
GANG = gang_policies(Gangs(Ledger(), {}))


@pytest.mark.parametrize("policy", [*made(), *GANG], ids=lambda policy: policy.name)
def test_a_policy_has_the_points_whose_members_it_has(policy: Policy) -> None:
    assert [has(policy, point) for point in POINTS] == [isinstance(policy, point) for point in POINTS]


def test_the_gang_has_every_point_but_those_that_are_for_others_to_say() -> None:
    missing = {point for point in POINTS if not any(has(policy, point) for policy in GANG)}
    others = {
        seam.FiltersAlike,
        seam.Reads,
        seam.Scores,
        seam.Infeasible,
        seam.InfeasibleInSlices,
        seam.Reserves,
        seam.Orders,
        seam.OrdersAlike,
        seam.CountsHeld,
    }
    assert missing == others
    assert {policy.name for policy in GANG} == {gang.GANG}
