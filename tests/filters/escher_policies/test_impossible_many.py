"""Who waits in vain may be thousands: what happens to one of them, or elsewhere, has none of the others looked at."""

from __future__ import annotations

from dataclasses import replace

import pytest

from extender.core.cluster import Pod
from extender.core.policies.matched_policy import MatchedPolicy
from extender.core.policies.policy_types import Balance
from extender.core.policy import Facts
from extender.filters.escher_policies import feasible
from extender.filters.escher_policies.feasible import PolicyFeasible
from extender.filters.escher_policies.standing import Standing
from extender.kube.names import NodeName
from tests.builders import NOW, ledger_of, node, pod
from tests.filters.escher_policies.world import ZONE

FACTS = Facts(ledger_of({}), {NodeName(n): node(n, {"cpu": 2000}, labels={ZONE: n}) for n in ("n1", "n2", "n3")})


def even(name: str, tasks: int = 100, *, namespace: str = "a", cpu: int = 1000) -> Pod:
    governed = (MatchedPolicy("even", Balance(tasks, 1, ZONE)),)
    return replace(pod(name, {"cpu": cpu}, namespace=namespace), governed=governed)


@pytest.fixture
def rule() -> PolicyFeasible:
    standing = Standing()
    rule = PolicyFeasible(standing)
    for number in range(50):
        waiting = even(f"p{number}")
        standing.observe(waiting, NOW)
        rule.observe(waiting, NOW)
    for number in range(50):
        assert rule.why_never(even(f"p{number}"), FACTS) is not None
    assert rule.take_withdrawn(FACTS) == ()
    return rule


def test_one_that_has_its_place_after_all_wakes_none_of_the_others(rule: PolicyFeasible) -> None:
    rule.observe(replace(even("p0"), node=NodeName("n1")), NOW)
    assert list(rule.take_withdrawn(FACTS)) == []
    rule.forget(FACTS.nodes[NodeName("n1")])
    bare = replace(FACTS, nodes={name: replace(each, labels={}) for name, each in FACTS.nodes.items()})
    assert list(rule.take_withdrawn(bare)) == []
    wide = {NodeName(f"m{n}"): node(f"m{n}", {"cpu": 90_000, "pods": 99}, labels={ZONE: f"m{n}"}) for n in range(2)}
    rule.observe(wide[NodeName("m0")], NOW)
    withdrawn = rule.take_withdrawn(replace(FACTS, nodes=wide))
    assert {each.name for each in withdrawn} == {f"p{number}" for number in range(1, 50)}


def test_what_happens_to_a_policy_of_that_name_elsewhere_raises_no_doubt(
    rule: PolicyFeasible, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = list[Pod]()
    alike = feasible._is_like

    def noted(other: Pod, pod: Pod) -> bool:
        compared.append(other)
        return alike(other, pod)

    monkeypatch.setattr(feasible, "_is_like", noted)
    rule.observe(even("x", 5, namespace="b", cpu=5), NOW)
    assert compared == []
    assert rule.take_withdrawn(FACTS) == ()
    rule.observe(even("y"), NOW)
    assert len(compared) == 1
    assert rule.take_withdrawn(FACTS) == ()
    rule.observe(even("z", cpu=5), NOW)
    assert list(rule.take_withdrawn(FACTS)) == []
