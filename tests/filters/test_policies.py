"""The policies that come with Escher, one by one: what pods may ask, where they may go, who goes first."""

from __future__ import annotations

from typing import Any

import pytest

from extender.core import policy as seam
from extender.core.cluster import Pod
from extender.core.gangs.gangs import Gangs
from extender.core.ledger.ledger import Ledger
from extender.core.policy import Facts, Policy, has
from extender.filters import gang, made
from extender.filters.gang import gang_policies
from extender.filters.retired import GROUP, Retired
from extender.filters.share_order import SHARE, WEIGHT, ShareOrder
from extender.kube.names import NodeName
from tests.builders import ledger_of, node, pod

N1, N2, N3 = NodeName("n1"), NodeName("n2"), NodeName("n3")
NAMES = [N1, N2, N3]


def facts(*pods: Pod, cpu: int = 8000) -> Facts:
    ledger = ledger_of({name: {"cpu": cpu} for name in NAMES})
    for each in pods:
        if each.node is not None:
            ledger.confirm(each.uid, on=each.node, units=each.requests)
    return Facts(ledger, {name: node(name) for name in NAMES}, {each.uid: each for each in pods})


class TestRetired:
    """Annotations that earlier versions read."""

    def test_a_pod_that_was_kept_apart_by_annotation_is_told_of_the_policy(self) -> None:
        said = Retired().malformed(pod(annotations={GROUP: "web"}))
        assert said is not None
        assert (said.field, said.value) == (GROUP, "web")
        assert GROUP in said.reason
        assert "EscherPolicy" in said.remedy

    def test_others_are_not_refused(self) -> None:
        assert Retired().malformed(pod(annotations={"escher.dev/prefer-nodes": "disk=ssd"})) is None


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
