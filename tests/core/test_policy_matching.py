"""Which policies govern a pod: what is remembered of those that are alike says the same as asking anew."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from extender.core.cluster import Pod
from extender.core.policies.policy_matching import ANSWERED, POLICY, PolicyMatching
from extender.core.policies.policy_types import (
    AntiAffinity,
    Balance,
    BinPacking,
    FairShare,
    Parameters,
    PolicyInForce,
    Queue,
    Soft,
)
from extender.kube.label_match import LabelRequirement, Selector
from tests.builders import pod

NAMES = ("a", "b", "c", "d")
_PARAMETERS: tuple[Parameters, ...] = (
    AntiAffinity(),
    Balance(),
    BinPacking(),
    FairShare(weight=2),
    FairShare(parent="a"),
    Soft(("a", "b")),
    Soft(("c",), required=False),
    Queue(),
)
_SELECTORS: tuple[Selector, ...] = (
    None,
    (),
    (LabelRequirement("tier", "In", ("web",)),),
    (LabelRequirement("tier", "NotIn", ("web", "db")),),
    (LabelRequirement("app", "Exists"),),
    (LabelRequirement("app", "DoesNotExist"),),
)


def drawn_pod(rng: random.Random, name: str) -> Pod:
    labels = {key: rng.choice(("web", "db")) for key in ("tier", "app", "other") if rng.random() < 0.5}
    labels |= {ANSWERED + each: "" for each in NAMES if rng.random() < 0.2}
    named = rng.choice(("", "a", "a,b", "c|d", "a|b|c"))
    return pod(name, namespace=rng.choice("xy"), labels=labels, annotations={POLICY: named} if named else {})


@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_same_for_one_who_was_never_asked_before(seed: int) -> None:
    rng = random.Random(seed)
    policy_matching, policies, turns = PolicyMatching(), dict[tuple[str, str], PolicyInForce](), list[tuple[Pod, str]]()
    pods = [drawn_pod(rng, f"p{number}") for number in range(30)]
    for each in pods:
        policy_matching.remember(each)
    for _ in range(60):
        before = {each.uid: policy_matching.matching(each) for each in pods}
        name = (rng.choice("xy"), rng.choice(NAMES))
        draw = rng.random()
        if draw < 0.2:
            policies.pop(name, None)
            is_another, turned = policy_matching.drop(*name), None
        elif draw < 0.4:
            turned = rng.choice(pods)
            turns.append((turned, rng.choice((POLICY, *NAMES))))
            policy_matching.take_turn(turned.uid, turns[-1][1])
            is_another = False
        else:
            policies[name] = PolicyInForce(rng.choice(_PARAMETERS), rng.choice(_SELECTORS))
            is_another, turned = policy_matching.put(*name, policies[name]), None
        anew = PolicyMatching()
        for each in pods:
            anew.remember(each)
        for (namespace, which), policy in policies.items():
            anew.put(namespace, which, policy)
        for turned, which in turns:
            anew.take_turn(turned.uid, which)
        after = {each.uid: policy_matching.matching(each) for each in pods}
        assert after == {each.uid: anew.matching(each) for each in pods}
        others = [each for each in pods if after[each.uid] != before[each.uid] and each is not turned]
        assert all(is_another and each.namespace == name[0] for each in others)
        for each in pods:
            assert policy_matching.resolved(each) == anew.resolved(each)


def test_labels_that_no_selector_asks_about_are_kept() -> None:
    policy_matching = PolicyMatching()
    policy_matching.put("default", "it", PolicyInForce(AntiAffinity(), (LabelRequirement("tier", "Exists"),)))
    one, other = (pod(name, labels={"tier": "web", "name": name}) for name in ("one", "other"))
    assert policy_matching.resolved(one).labels["name"] == "one"
    assert policy_matching.resolved(other).labels["name"] == "other"
    assert policy_matching.matching(one) == policy_matching.matching(replace(other, labels={"tier": "db"}))
