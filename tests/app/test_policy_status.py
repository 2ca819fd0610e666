"""How many pods a policy governs, against looking at every pod."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.app.contracts.kind import Identity
from extender.app.escher_policies.status import NAMED, GovernedPods, named
from extender.core.cluster import Pod
from extender.core.policies.policy_types import BinPacking, PolicyInForce, Queue
from extender.kube.label_match import LabelRequirement, Selector, matches
from extender.kube.names import PodUid
from tests.builders import pod


class Stopped:
    """A clock that somebody sets."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        return self.at

    def steady(self) -> float:
        return self.at


LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz"))
VALUES = st.lists(st.sampled_from("xyz"), min_size=1, max_size=3).map(tuple)
WITH_VALUES = st.builds(LabelRequirement, st.sampled_from("abc"), st.sampled_from(["In", "NotIn"]), VALUES)
WITHOUT = st.builds(LabelRequirement, st.sampled_from("abc"), st.sampled_from(["Exists", "DoesNotExist"]))
SELECTORS: st.SearchStrategy[Selector] = st.none() | st.lists(WITH_VALUES | WITHOUT, max_size=3).map(tuple)
PODS = st.lists(
    st.tuples(st.sampled_from(["n", "m"]), LABELS, st.sampled_from(["", "p", "q", "p,q", "q|p", " p ", "pp", "p,p"])),
    max_size=8,
)


def of_namespace(pods: Mapping[PodUid, Pod]) -> Callable[[str], list[Pod]]:
    return lambda name: [each for each in pods.values() if each.namespace == name]


@given(drawn=PODS, selector=SELECTORS)
def test_the_count_is_that_of_all_pods_looked_at_one_by_one(drawn: list[Any], selector: Selector) -> None:
    pods = {
        PodUid(str(number)): pod(str(number), namespace=namespace, labels=labels, annotations={NAMED: said})
        for number, (namespace, labels, said) in enumerate(drawn)
    }
    one_by_one = sum(
        each.namespace == "n" and (matches(selector, each.labels) or "p" in named(each)) for each in pods.values()
    )
    counted = GovernedPods(of_namespace(pods), Stopped())(Identity("n", "p"), PolicyInForce(BinPacking(), selector))
    assert counted == one_by_one


def test_of_one_that_is_asked_those_count_that_have_its_answer() -> None:
    pods = {
        PodUid(str(number)): pod(str(number), namespace=namespace, labels=labels, annotations={NAMED: "p"})
        for number, (namespace, labels) in enumerate(
            [
                ("n", {"esl.escher.dev/p": "a"}),
                ("n", {}),
                ("m", {"esl.escher.dev/p": "b"}),
                ("n", {"esl.escher.dev/q": "c"}),
            ]
        )
    }
    assert GovernedPods(of_namespace(pods), Stopped())(Identity("n", "p"), PolicyInForce(Queue())) == 1


@pytest.mark.parametrize(("said", "names"), [("a", ["a"]), ("a,b", ["a", "b"]), ("a | b", ["a", "b"]), ("", [])])
def test_a_pod_names_policies_with_commas_and_bars(said: str, names: list[str]) -> None:
    assert list(named(pod(annotations={NAMED: said}))) == names
    assert list(named(pod())) == []


def test_what_came_a_moment_ago_is_counted() -> None:
    pods: dict[PodUid, Pod] = {}
    clock = Stopped()
    count = GovernedPods(of_namespace(pods), clock)
    everything = PolicyInForce(BinPacking(), ())
    assert count(Identity("default", "p"), everything) == 0
    pods[PodUid("1")] = pod("1")
    clock.at += 0.1
    assert count(Identity("default", "p"), everything) == 1
