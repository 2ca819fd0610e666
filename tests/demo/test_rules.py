"""What the demo's policies promise is looked at from outside, at every sighting of a pod."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from extender.kube.errors import Unavailable
from lab.compare.trials.outside import LABEL
from lab.demo.jobs import Job
from lab.demo.outside import Outside
from lab.demo.policy_scenes import one_a_node


def job(rule: bool = True) -> Job:
    return Job("web", "", 3, "W", rule=one_a_node if rule else None)


def test_a_rule_that_holds_at_every_sighting_is_not_broken() -> None:
    web = job()
    for number in range(3):
        web.stands(f"web-{number}", f"node-{number}")
    web.stands("web-0", None)
    web.stands("web-3", "node-0")
    assert (web.breaches, sorted(web.nodes.values())) == (0, ["node-0", "node-1", "node-2"])


def test_two_on_a_node_are_seen_though_one_goes_again() -> None:
    web = job()
    web.stands("web-0", "node-0")
    web.stands("web-1", "node-0")
    web.stands("web-1", None)
    assert web.breaches == 1


def test_a_job_without_a_rule_breaks_none() -> None:
    web = job(rule=False)
    for number in range(3):
        web.stands(f"web-{number}", "node-0")
    assert web.breaches == 0


class Nothing:
    async def request(self, method: str, path: str, body: bytes | None = None, **_: object) -> bytes:
        raise Unavailable("nobody is there")

    def lines(self, path: str, *, silence: float) -> object:
        raise Unavailable("nobody is there")


@pytest.mark.parametrize(("ghost", "breaches"), [(False, 1), (True, 0)])
def test_outside_tells_a_job_where_each_of_its_pods_stands_but_not_of_ghosts(ghost: bool, breaches: int) -> None:
    outside = Outside(Nothing())  # type: ignore[arg-type]
    asked: list[dict[str, str]] = []

    def rule(nodes: Mapping[str, str]) -> bool:
        asked.append(dict(nodes))
        return len(asked) < 3

    watched = outside.expect("web", "", 2, "W", rule=rule)
    for number, kind in enumerate(("ADDED", "ADDED", "DELETED")):
        hear(outside, f"web-{min(number, 1)}", f"node-{number}", kind, ghost=ghost)
    assert watched.breaches == breaches
    if not ghost:
        assert asked == [{"web-0": "node-0"}, {"web-0": "node-0", "web-1": "node-1"}, {"web-0": "node-0"}]


def hear(outside: Outside, name: str, node: str, kind: str, *, ghost: bool) -> None:
    labels = {"escher.dev/ghost": "web"} if ghost else {}
    body = {
        "metadata": {"name": name, "resourceVersion": "1", "labels": {LABEL: "web", **labels}},
        "spec": {"nodeName": node},
        "status": {"phase": "Running"},
    }
    outside._pods.told({"type": kind, "object": body})
