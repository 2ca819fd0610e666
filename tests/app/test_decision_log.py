"""The decision log: at debug each decision is one line, with its name and what it is about; at info there is none."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from extender.app.contracts.effects import AdvertiseCapacity, Effect
from extender.app.contracts.extender_api import Verdict, Victims
from extender.app.contracts.kind import Identity
from extender.app.contracts.ports import PodRef
from extender.app.observability import decision_log
from extender.app.observability.decision_events import BindEnded
from extender.core.gangs.state.gang import GangPlanned
from extender.core.names import GangKey
from extender.core.policies.policy_types import AntiAffinity, PolicyInForce
from extender.kube.names import NodeName, PodUid, ResourceKey
from tests.adapters.http.fakes import NotedVerbs
from tests.app.fakes import LoopClock
from tests.app.test_decision_events import WORDS
from tests.app.town import Town
from tests.builders import gang_pods, pod

pytestmark = pytest.mark.anyio
TRAIN = GangKey("default", "train")
N1, N2 = NodeName("n1"), NodeName("n2")
OPERATIONS = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
NAMES = {what for _, what, _ in WORDS} | set(decision_log.ALONE_HERE)
RESOURCE = {"metadata": {"name": "r"}, "spec": {"capacity": 4, "nodeSpec": {"nodeName": "n0"}}}
Line = dict[str, Any]


def lines(do: Callable[[], object]) -> list[Line]:
    with capture_logs() as logs:
        do()
    return [dict(each) for each in logs]


# -- each kind of decision is one line


@pytest.mark.parametrize(("told", "what", "detail"), WORDS, ids=range(len(WORDS)))
def test_what_is_announced_is_one_line_in_the_same_words(told: Any, what: str, detail: str) -> None:
    [line] = lines(lambda: decision_log.tell(told))
    assert (line["event"], line["log_level"]) == (what, "debug")
    assert detail in line.get("detail", "")


def test_what_concerns_nobody_is_none() -> None:
    assert lines(lambda: decision_log.tell(AdvertiseCapacity(N1))) == []


def test_who_is_told_of_effects_is_told_of_all_of_them_and_the_log_of_what_is_of_interest() -> None:
    told: list[Effect] = []
    both = decision_log.also_told(told.append)
    effects: list[Effect] = [GangPlanned(TRAIN), AdvertiseCapacity(N1)]
    found = lines(lambda: [both(each) for each in effects])
    assert told == effects
    assert found == [{"event": "GangPlanned", "log_level": "debug", "namespace": "default", "gang": "train"}]


class TestVerbs:
    @pytest.fixture
    async def noted(self) -> NotedVerbs:
        return NotedVerbs()

    @pytest.fixture
    async def verbs(self, noted: NotedVerbs) -> decision_log.LoggedVerbs:
        return decision_log.LoggedVerbs(noted, LoopClock())

    async def test_filter_tells_how_many_nodes_were_sent_and_passed_and_how_long_it_took(
        self, verbs: decision_log.LoggedVerbs, noted: NotedVerbs
    ) -> None:
        [member] = gang_pods("train", 1)
        noted.verdict = Verdict((), {N1: "too little room", N2: "too little room"})
        [line] = lines(lambda: verbs.filter(member, [N1, N2], alone=True))
        assert line == {
            "event": "PodTurnedAway", "log_level": "debug", "namespace": "default", "gang": "train", "pod": "train-0",
            "detail": "2 nodes: too little room", "sent": 2, "passed": 0, "seconds": 0.0,
        }  # fmt: skip
        assert noted.calls == [("filter alone", member, [N1, N2])]

    async def test_filter_that_lets_all_pass_is_a_line_too(self, verbs: decision_log.LoggedVerbs) -> None:
        [line] = lines(lambda: verbs.filter(pod("p"), [N1, N2]))
        assert (line["event"], line["detail"]) == ("NodesFiltered", "2 of 2 nodes pass")

    async def test_prioritize_tells_which_node_is_best(self, verbs: decision_log.LoggedVerbs) -> None:
        [line] = lines(lambda: verbs.prioritize(pod("p"), [N1, N2]))
        assert (line["event"], line["node"], line["sent"], line["scored"]) == ("NodesScored", "n2", 2, 2)

    async def test_preempt_tells_on_how_many_nodes_victims_may_go(self, verbs: decision_log.LoggedVerbs) -> None:
        [line] = lines(lambda: verbs.preempt(pod("p"), {N1: Victims([PodUid("v")])}))
        assert (line["event"], line["sent"], line["passed"]) == ("VictimsAllowed", 1, 1)

    async def test_bind_is_one_line_when_it_is_over(self, verbs: decision_log.LoggedVerbs) -> None:
        with capture_logs() as logs:
            assert await verbs.bind(PodRef("default", "p", PodUid("u")), N1) == ""
        assert [(each["event"], each["node"], each["seconds"]) for each in logs] == [("PodBound", "n1", 0.0)]
        assert (
            lines(lambda: decision_log.tell(BindEnded(PodRef("default", "p", PodUid("u")), N1, "no")))[0]["detail"]
            == "no"
        )


def test_a_plan_that_is_given_up_is_told_with_the_reason() -> None:
    [line] = lines(lambda: decision_log.plan_given_up(TRAIN, "too late"))
    assert line == {
        "event": "GangPlanGivenUp", "log_level": "debug", "namespace": "default", "gang": "train", "detail": "too late"
    }  # fmt: skip


def test_a_resource_that_is_set_is_told_with_its_units() -> None:
    [line] = lines(lambda: decision_log.resource_set(ResourceKey("escher.dev/team.r"), {N1: 2, N2: 3}))
    assert line == {
        "event": "ResourceSet", "log_level": "debug", "resource": "escher.dev/team.r", "nodes": 2, "units": 5
    }  # fmt: skip


def test_a_policy_is_told_when_it_comes_into_force_and_when_it_ends() -> None:
    told: list[Any] = []

    class Noted:
        def put(self, name: Identity, policy: PolicyInForce) -> None:
            told.append((name, policy))

        def drop(self, name: Identity) -> None:
            told.append(name)

    policy_matching, name, policy = (
        decision_log.LoggedGoverning(Noted()),
        Identity("team", "apart"),
        PolicyInForce(AntiAffinity()),
    )
    found = [*lines(lambda: policy_matching.put(name, policy)), *lines(lambda: policy_matching.drop(name))]
    assert [(each["event"], each["policy"], each.get("type")) for each in found] == [
        ("PolicyInForce", "apart", "anti-affinity"),
        ("PolicyWithdrawn", "apart", None),
    ]
    assert told == [(name, policy), name]


# -- the whole service


async def _story(level: str) -> Counter[str]:
    """How many lines of decisions there are of each name, of a gang that is placed, another that waits, a resource."""
    with capture_logs() as logs:
        async with Town(log_level=level) as town:
            town.create(*town.gang("train", 3))
            await town.until_bound(3)
            town.create(*town.gang("other", 2))
            await town.pass_time(2)
            town.ask(
                "POST",
                "/apis/escher.dev/v1alpha1/namespaces/default/ephemeralresources",
                {"apiVersion": "escher.dev/v1alpha1", "kind": "EphemeralResource", **RESOURCE},
            )
            await town.pass_time(1)
    return Counter(each["event"] for each in logs if each["event"] in NAMES)


async def test_the_service_tells_each_decision_once_at_debug() -> None:
    told = await _story("debug")
    assert (told["PodBound"], told["GangPlanned"], told["GangBound"], told["ResourceSet"]) == (3, 1, 1, 1)
    assert told["PodPlaced"] == 3
    assert told["GangTurnedAway"] == 1
    assert told["PodTurnedAway"] >= 1


async def test_the_service_tells_none_at_info() -> None:
    assert await _story("info") == {}


# -- the documentation


def test_every_line_is_in_the_table_of_the_documentation() -> None:
    section = OPERATIONS.partition("\n## The log\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]*`) \|", section, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == NAMES
