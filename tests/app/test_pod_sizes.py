"""A pod that has more of a field than is read waits, is told so once, and costs the same however often it changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from extender.adapters.kubernetes.codecs.kinds import pods
from extender.app.explain.explain import Explain
from extender.core.cluster import Pod
from extender.core.names import DOMAIN
from extender.core.policies import policy_matching
from extender.kube.names import NodeName
from tests.adapters.kubernetes import manifests
from tests.builders import node
from tests.core.gang_world import GangWorld

POLICY = {f"{DOMAIN}/policy": "|".join("a" * 125_000)}
READ = pods(60.0)


@pytest.fixture
def world() -> GangWorld:
    made = GangWorld()
    made.add_node(node("n1"))
    return made


def told(annotations: dict[str, str], **labels: str) -> Pod:
    manifest: dict[str, Any] = manifests.pod(schedulingGates=[{"name": f"{DOMAIN}/gang"}])
    manifest["metadata"] |= {"annotations": annotations, "labels": labels}
    found = READ.read_event(json.dumps({"type": "MODIFIED", "object": manifest}).encode()).item
    assert found is not None
    return found


def test_alternatives_without_end_are_never_taken_to_pieces(world: GangWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    names_in: Callable[[str], Any] = policy_matching.names_in

    def counted(text: str) -> Any:
        asked.append(len(text))
        return names_in(text)

    monkeypatch.setattr(policy_matching, "names_in", counted)
    for number in range(20):
        world.do(world.scheduler.observe(told(POLICY, l=str(number))))
    assert [refused.ask.field for refused in world.refused] == [f"annotation {DOMAIN}/policy"]
    assert asked == []
    assert all(not pod.annotations for pod in world.scheduler.cache.policy_matching.told())


def test_explain_says_what_was_found_and_what_is_allowed(world: GangWorld) -> None:
    world.do(world.scheduler.observe(told(POLICY)))
    [pod] = world.scheduler.cache.pods.values()
    explained = Explain(world.scheduler.cache).pod(pod.namespace, pod.name)
    assert explained.summary == f"annotation {DOMAIN}/policy has 249999 characters; at most 2112 are read"
    assert explained.remedies == [f"write 2112 characters or fewer in annotation {DOMAIN}/policy, and recreate the pod"]


def test_filter_refuses_it_and_it_takes_nothing(world: GangWorld) -> None:
    pod = told(POLICY)
    world.do(world.scheduler.observe(pod))
    verdict = world.do(world.scheduler.filter(pod, [NodeName("n1")]))
    assert verdict.unresolvable == {
        NodeName("n1"): f"annotation {DOMAIN}/policy has 249999 characters; at most 2112 are read"
    }
    assert not list(world.scheduler.cache.ledger.rows.holdings())


def test_it_is_as_any_other_once_it_says_less(world: GangWorld) -> None:
    world.do(world.scheduler.observe(told(POLICY)))
    world.do(
        world.scheduler.observe(
            told({f"{DOMAIN}/policy": "a|b", f"{DOMAIN}/gang-min-member": "1"}, **{f"{DOMAIN}/gang": "g"})
        )
    )
    [pod] = world.scheduler.cache.pods.values()
    assert [each.name for each in pod.governed] == ["a"]
