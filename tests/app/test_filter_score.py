"""What is said of many nodes at once is what would be said of each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.app.contracts.extender_api import Verdict
from extender.app.policies.fault_isolation import FAILED, REFUSED, FaultIsolation
from extender.app.policies.filter_score import FilterScore
from extender.core.cluster import Pod
from extender.core.ledger.ledger import Ledger
from extender.core.policies.matched_policy import MatchedPolicy
from extender.core.policies.policy_types import AntiAffinity
from extender.core.policy import Concerns, Facts, NodeFilter, OnlyOn, OnlyTheseNodes, Refuse, Scorer
from extender.kube.names import CPU, NodeName, ResourceKey
from tests.builders import pod

NODES = [NodeName(f"n{number}") for number in range(6)]
FACTS = Facts(Ledger(), {})


@dataclass
class Refusing:
    """`said`: what it says of nodes; None: it meets a defect there. `elsewhere`: what it says of all others, for which
    it need not be asked, and None lets pass; None: it has no say there, and `few` says so."""

    name: str
    said: Mapping[NodeName, Refuse | None]
    few: bool
    elsewhere: Refuse | None = None

    def filter(self, pod: Pod, facts: Facts) -> NodeFilter | None:
        def judge(node: NodeName) -> Refuse | None:
            assert node in self.said or not (self.few or self.elsewhere), (
                "asked about a node of which it has nothing to say"
            )
            said = self.said.get(node)
            if said is None and node in self.said and self.elsewhere is None:
                raise ValueError("a defect")
            return said

        if self.elsewhere is not None:
            return OnlyTheseNodes(self.said.keys(), judge, self.elsewhere)
        return OnlyOn(self.said.keys(), judge) if self.few else judge


refusals = st.none() | st.builds(Refuse, st.sampled_from("abc"), preemption_helps=st.booleans())
policies = st.lists(
    st.tuples(st.dictionaries(st.sampled_from(NODES), refusals, max_size=6), st.booleans(), refusals), max_size=4
).map(lambda drawn: [Refusing(f"p{at}", *facts) for at, facts in enumerate(drawn)])


def twin(judging: FilterScore, sent: list[NodeName]) -> Verdict:
    """Node by node."""
    passed, rejected, unresolvable = list[NodeName](), dict[NodeName, str](), dict[NodeName, str]()
    for node in sent:
        refusal = judging.refusal(pod(), node)
        if refusal is None:
            passed.append(node)
        else:
            (rejected if refusal.preemption_helps else unresolvable)[node] = refusal.reason
    return Verdict(passed, rejected, unresolvable)


@given(policies, st.lists(st.sampled_from(NODES), unique=True))
def test_of_many_nodes_the_same_is_said_in_the_same_order(policies: list[Refusing], sent: list[NodeName]) -> None:
    contained = FaultIsolation()
    judging = FilterScore(policies, FACTS, contained)
    expected = twin(judging, sent)
    failures = set(contained.failures)
    contained.failures.clear()
    verdict = judging.verdict(pod(), sent)
    assert set(contained.failures) == failures
    if verdict.passed and not (verdict.rejected or verdict.unresolvable):
        # Where some passed, reasons may be left out.
        assert verdict.passed == expected.passed
        return
    assert verdict == expected
    assert list(verdict.rejected) == list(expected.rejected)
    assert list(verdict.unresolvable) == list(expected.unresolvable)


def test_where_all_pass_they_are_the_very_ones_that_were_sent() -> None:
    judging = FilterScore([Refusing("p", {NODES[0]: Refuse("a")}, few=True)], FACTS, FaultIsolation())
    assert judging.verdict(pod(), sent := NODES[1:]).passed is sent


class Unsure:
    """A set that cannot tell of every node whether it is in it."""

    def __contains__(self, node: object) -> bool:
        if node == NODES[1]:
            raise ValueError("a defect")
        return node == NODES[2]


class Few:
    name = "few"

    def filter(self, pod: Pod, facts: Facts) -> NodeFilter | None:
        return OnlyOn(Unsure(), lambda node: Refuse("a"))


def test_a_policy_that_cannot_say_whom_it_concerns_ends_there_too() -> None:
    contained = FaultIsolation()
    judging = FilterScore([Few()], FACTS, contained)
    expected = twin(judging, NODES)
    contained.failures.clear()
    assert judging.verdict(pod(), NODES) == expected
    assert expected.passed == [NODES[0], *NODES[3:]]
    assert [each.policy for each in contained.failures.values()] == ["few"]


@dataclass
class Senseless:
    """What it answers is of no use: as where somebody's policy says False for no."""

    said: Any
    name = "senseless"

    def filter(self, pod: Pod, facts: Facts) -> NodeFilter | None:
        return lambda node: self.said

    def score(self, pod: Pod, facts: Facts) -> Scorer | None:
        return lambda node: self.said


@pytest.mark.parametrize("said", [True, False, 0, "no", Refuse, Refuse(7), Refuse(["a"])])  # type: ignore[arg-type]
def test_what_is_no_refusal_is_a_defect_of_its_policy(said: Any) -> None:
    contained = FaultIsolation()
    judging = FilterScore([Senseless(said)], FACTS, contained)
    assert judging.refusal(pod(), NODES[0]) is REFUSED
    assert [each.policy for each in contained.failures.values()] == ["senseless"]
    contained.failures.clear()
    assert judging.verdict(pod(), NODES) == Verdict([], {}, dict.fromkeys(NODES, FAILED))
    assert [each.policy for each in contained.failures.values()] == ["senseless"]


@pytest.mark.parametrize("said", [None, "much", [1.0]])
def test_what_is_no_score_is_a_defect_of_its_policy_and_counts_as_nothing(said: Any) -> None:
    contained = FaultIsolation()
    judging = FilterScore([Senseless(said)], FACTS, contained)
    assert judging.scores(pod(), NODES) == {}
    assert list(judging.best_first(pod(), NODES)) == NODES
    assert [each.policy for each in contained.failures.values()] == ["senseless"]


@pytest.mark.parametrize("said", [math.nan, -math.inf, -1.0])
def test_what_is_not_above_0_counts_as_nothing(said: float) -> None:
    assert FilterScore([Senseless(said)], FACTS, FaultIsolation()).scores(pod(), NODES) == {}


@pytest.mark.parametrize("ephemeral", [False, True])
@pytest.mark.parametrize("governed", [False, True])
def test_a_policy_is_asked_only_about_pods_that_concern_it(ephemeral: bool, governed: bool) -> None:
    asked: list[str] = []

    class Asked:
        def __init__(self, name: str, concerns: object) -> None:
            self.name = name
            if concerns is not None:
                self.concerns = concerns

        def filter(self, pod: Pod, facts: Facts) -> NodeFilter | None:
            asked.append(f"filter {self.name}")
            return None

        def score(self, pod: Pod, facts: Facts) -> Scorer | None:
            asked.append(f"score {self.name}")
            return None

    policies = [
        Asked("all", None),
        Asked("other", ["its own"]),
        Asked("ephemeral", Concerns.EPHEMERAL),
        Asked("governed", Concerns.GOVERNED),
    ]
    judging = FilterScore(policies, FACTS, FaultIsolation())
    requests = {CPU: 100, **({ResourceKey("escher.dev/ns.data"): 1} if ephemeral else {})}
    concerned = pod("p", requests, governed=(MatchedPolicy("apart", AntiAffinity()),) if governed else ())
    assert judging.verdict(concerned, NODES) == Verdict(NODES)
    assert judging.scores(concerned, NODES) == {}
    names = ["all", "other", *["ephemeral"] * ephemeral, *["governed"] * governed]
    assert asked == [f"{call} {name}" for call in ("filter", "score") for name in names]
