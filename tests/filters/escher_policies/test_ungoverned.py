"""What policies cost a pod that none of them governs: nothing that grows with their number."""

from __future__ import annotations

from typing import cast

import pytest

from extender.core.policies import policy_matching
from extender.core.policies.policy_matching import PolicyMatching
from extender.core.policies.policy_types import AntiAffinity, BinPacking, DataLocality, PolicyInForce
from extender.core.policy import Concerns, Facts, has
from extender.core.policy import Filters as HasFilter
from extender.core.policy import Scores as HasScore
from extender.filters import escher_policies as policies
from extender.kube.label_match import LabelRequirement, matches
from extender.kube.names import NodeName
from tests.builders import gang_pods, pod
from tests.filters.escher_policies.world import PolicyWorld, selecting


def two_hundred(of: PolicyMatching) -> None:
    for number in range(200):
        of.put("default", f"p{number}", PolicyInForce(AntiAffinity(), selecting(app=f"app{number}")))


def test_of_two_hundred_policies_none_is_asked_about_a_pod_without_their_labels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[object] = []

    def counted(selector: object, labels: object) -> bool:
        asked.append(selector)
        return matches(selector, labels)  # type: ignore[arg-type]

    table = PolicyMatching()
    two_hundred(table)
    monkeypatch.setattr(policy_matching, "matches", counted)
    for labels in ({}, {"team": "a", "tier": "web"}, {"app": "other"}):
        one = pod(labels=labels)
        assert table.resolved(one) is one
    assert asked == []
    assert [each.name for each in table.resolved(pod(labels={"app": "app7", "team": "a"})).governed] == ["p7"]
    assert len(asked) == 1


def test_no_policy_is_asked_about_it_or_reads_anything_for_it() -> None:
    nothing = cast(Facts, object())
    for policy in policies.made():
        if getattr(policy, "concerns", None) is Concerns.GOVERNED:
            continue
        if has(policy, HasFilter):
            assert policy.filter(pod(), nothing) is None  # type: ignore[attr-defined]
        if has(policy, HasScore):
            assert policy.score(pod(), nothing) is None  # type: ignore[attr-defined]


def test_it_is_answered_as_if_there_were_none() -> None:
    world, without = PolicyWorld(zones="ab"), PolicyWorld(zones="ab")
    two_hundred_in(world)
    for each in (world, without):
        each.create(pod("one"))
    verdicts = [each.filter(pod("one")) for each in (world, without)]
    assert verdicts[0] == verdicts[1]
    assert list(verdicts[0].passed) == ["n0", "n1"], "nothing is held for it"
    assert world.known("one") == pod("one")


def two_hundred_in(world: PolicyWorld) -> None:
    for number in range(200):
        parameters = (AntiAffinity(), BinPacking(), DataLocality(("data1",)))[number % 3]
        world.govern(f"p{number}", parameters, selecting(app=f"app{number}"))


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ((LabelRequirement("app", "Exists"),), [True, True, False]),
        ((LabelRequirement("app", "DoesNotExist"),), [False, False, True]),
        ((LabelRequirement("app", "In", ("web", "db")),), [True, True, False]),
        ((LabelRequirement("app", "NotIn", ("web",)),), [False, True, True]),
        ((LabelRequirement("app", "NotIn", ("web",)), LabelRequirement("app", "Exists")), [False, True, False]),
        ((LabelRequirement("app", "In", ()),), [False, False, False]),
        ((), [True, True, True]),
        (None, [False, False, False]),
    ],
)
def test_whatever_a_selector_requires_it_finds_its_pods(
    selector: tuple[LabelRequirement, ...] | None, chosen: list[bool]
) -> None:
    table = PolicyMatching()
    table.put("default", "it", PolicyInForce(BinPacking(), selector))
    pods = [pod(labels={"app": "web"}), pod(labels={"app": "db"}), pod(labels={"tier": "x"})]
    assert [bool(table.resolved(each).governed) for each in pods] == chosen
    table.drop("default", "it")
    assert not any(table.resolved(each).governed for each in pods)


def test_an_offer_by_which_a_gang_was_planned_is_no_hint_for_later() -> None:
    """A window of nodes that sufficed then is not every node that kube-scheduler would have the member on."""
    world = PolicyWorld(zones="ab", cpu=1000)
    first, second = gang_pods("train", 2, {"cpu": 500})
    world.create(first, second)
    assert list(world.filter(first, [NodeName("n0")]).passed) == ["n0"]
    cache = world.scheduler.cache
    assert cache.gangs.planning._places._offers.of(first) is None
