"""What happens to gangs: they wait without asking, are woken by what changed, lose members, come from Jobs, are
malformed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lab.controlplane.api import ApiError
from loadtests.shared.pods import EXTENDER, Json
from loadtests.shared.sightings import Report
from tests.controlplane.deadline import eventually
from tests.e2e.workload import GANG_APPROACHES, Arena, quiet, stays

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

OTHER_GROUP = "batch.example.org"
OTHER_JOB = {"apiVersion": f"{OTHER_GROUP}/v1", "kind": "Job"}
OTHER_JOB_KIND: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"jobs.{OTHER_GROUP}"},
    "spec": {
        "group": OTHER_GROUP,
        "names": {"kind": "Job", "plural": "jobs", "singular": "job", "listKind": "JobList"},
        "scope": "Namespaced",
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
        ],
    },
}

both = pytest.mark.parametrize("scheduler", GANG_APPROACHES)


def wakes_of(report: Report, arena: Arena, names: list[str]) -> list[int]:
    return [report.wakes.get(f"{arena.namespace}/{name}", 0) for name in names]


class Waiting:
    """A gang of four, each a full node, where three nodes are free; nobody asks about it any more."""

    def __init__(self, arena: Arena, scheduler: str) -> None:
        self.arena = arena
        arena.nodes(4)
        [self.blocker] = arena.create(arena.pod("blocker", scheduler, cpu=8))
        self.blocked = arena.until_bound([self.blocker])[self.blocker]
        self.members = arena.create(*arena.gang("train", 4, scheduler, cpu=8))
        arena.until_rejected(self.members)
        self.calls = quiet(lambda: arena.service.calls("filter"))

    def more_calls(self) -> int:
        return self.arena.service.calls("filter") - self.calls


@both
class TestWaking:
    def test_a_gang_that_waits_asks_nothing(self, arena: Arena, scheduler: str) -> None:
        waiting = Waiting(arena, scheduler)
        assert stays(waiting.more_calls, during=5, what="the number of filter calls") == 0
        assert wakes_of(arena.report(), arena, waiting.members) == [0, 0, 0, 0]
        state = arena.gang_state("train")
        assert (state["phase"], state["quorum"], len(state["members"])) == ("waiting", 4, 4)
        assert "3 of 4 members fit" in state["reason"]
        last = max(arena.events("GangWaiting"), key=lambda each: str(each["eventTime"]))
        assert "3 of 4 members fit; the next requests 8 cpu, and a node has at most 0 free" in last["note"]

    @pytest.mark.parametrize("change", ["node added", "pod deleted", "node given more", "taint removed"])
    def test_what_makes_room_wakes_every_member_once(self, arena: Arena, scheduler: str, change: str) -> None:
        waiting = Waiting(arena, scheduler)
        make_room: dict[str, Callable[[], object]] = {
            "node added": lambda: arena.nodes(1),
            "pod deleted": lambda: arena.delete(waiting.blocker),
            "node given more": lambda: arena.patch_status(waiting.blocked, {"cpu": "16"}, {"cpu": "16"}),
            "taint removed": lambda: arena.api.patch(f"/api/v1/nodes/{arena.own_nodes[-1]}", {"spec": {"taints": []}}),
        }
        if change == "taint removed":
            arena.nodes(1, taint="e2e.test/closed")
            waiting.calls = quiet(lambda: arena.service.calls("filter"))
        make_room[change]()
        arena.until_bound(waiting.members)
        report = arena.assert_witnessed()
        wakes, calls = wakes_of(report, arena, waiting.members), waiting.more_calls()
        # One wake a member. kube-scheduler may have tried one of them itself, on nodes as they were before the change,
        # just when the others were woken: it was turned away once more, and is woken once more.
        assert sum(wakes) <= 5, wakes
        # One call a member; and one or, on a busy machine, two more each, where kube-scheduler tried it by itself.
        assert 4 <= calls <= 4 + 2 * sum(wakes)
        arena.field.measured.append(f"{scheduler}, {change}: wakes {wakes}, {calls} filter calls for 4 members")

    def test_what_makes_too_little_room_wakes_nobody(self, arena: Arena, scheduler: str) -> None:
        waiting = Waiting(arena, scheduler)
        arena.nodes(1, cpu=7)
        assert stays(lambda: arena.bound(waiting.members), during=2, what="the members bound") == {}
        assert wakes_of(arena.report(), arena, waiting.members) == [0, 0, 0, 0]
        # kube-scheduler itself tries each once more, for a node was added; and again, for its message to the pod says
        # of how many nodes, and has changed.
        assert waiting.more_calls() <= 8
        assert stays(waiting.more_calls, what="the number of filter calls") <= 8


@both
def test_a_resource_that_is_raised_wakes_the_gang_that_waits_for_it(arena: Arena, scheduler: str) -> None:
    node, other = arena.nodes(2)
    arena.set_resource("seat", 3, node)
    members = arena.create(*arena.gang("train", 4, scheduler, quorum=4, **{arena.key("seat"): 1}))
    arena.until_rejected(members)
    calls = quiet(lambda: arena.service.calls("filter"))
    assert arena.bound(members) == {}
    arena.set_resource("seat", 4, node)
    assert set(arena.until_bound(members).values()) == {node}
    assert other not in arena.bound().values()
    assert max(wakes_of(arena.report(), arena, members)) <= 1
    assert arena.service.calls("filter") - calls <= 8


@both
def test_of_three_gangs_two_fit_on_13_nodes_and_the_third_follows(arena: Arena, scheduler: str) -> None:
    """The prototype deadlocked here: each gang had a part of the nodes, all timed out, and met again."""
    arena.nodes(13)
    gangs = {name: arena.gang(name, 6, scheduler, cpu=8) for name in ("red", "green", "blue")}
    arena.create(*(each for trio in zip(*gangs.values(), strict=True) for each in trio))
    names = {gang: [each["metadata"]["name"] for each in members] for gang, members in gangs.items()}

    def complete() -> set[str]:
        bound = arena.bound().keys()
        return {gang for gang, members in names.items() if set(members) <= bound}

    eventually(lambda: len(complete()) == 2, what="two of the gangs")
    placed = complete()
    [waits] = gangs.keys() - placed
    assert stays(lambda: arena.bound(names[waits]), what="the third gang's members") == {}
    arena.delete(*names[min(placed)])
    arena.until_bound(names[waits])


@both
def test_a_member_deleted_at_the_barrier_does_not_count(arena: Arena, scheduler: str) -> None:
    """The prototype bound 5 of 6 here."""
    arena.nodes(6)
    members = arena.gang("train", 6, scheduler, quorum=6, cpu=8)
    early = arena.bring_to_barrier(*members[:5])
    arena.delete(early[0])
    arena.create(members[5])
    living = [*early[1:], members[5]["metadata"]["name"]]
    assert stays(lambda: arena.bound(), what="the members bound") == {}
    successor = arena.gang("train", 7, scheduler, quorum=6, cpu=8)[6]
    arena.create(successor)
    arena.until_bound([*living, successor["metadata"]["name"]], within=30)


@both
def test_all_members_deleted_at_the_barrier_leave_nothing(arena: Arena, scheduler: str) -> None:
    [node] = arena.nodes(1)
    early = arena.bring_to_barrier(*arena.gang("train", 5, scheduler, quorum=6))
    arena.delete(*early)
    eventually(lambda: arena.service.cluster_state(node=node)[node]["available"]["cpu"] == 8, what="all of the node")
    arena.until_bound(arena.create(arena.pod("next", scheduler, cpu=8)))


@both
def test_more_members_than_the_quorum_follow_as_room_allows(arena: Arena, scheduler: str) -> None:
    arena.nodes(5)
    members = arena.create(*arena.gang("train", 8, scheduler, quorum=4, cpu=8))
    eventually(lambda: len(arena.bound(members)) == 5, what="the quorum and one more")
    assert len(stays(lambda: arena.bound(members), what="the members bound")) == 5
    arena.nodes(3)
    arena.until_bound(members)


@both
def test_an_ordinary_pod_never_takes_what_is_reserved_for_a_gang(arena: Arena, scheduler: str) -> None:
    arena.nodes(4)
    early = arena.bring_to_barrier(*arena.gang("train", 3, scheduler, quorum=4, cpu=8))
    thief = arena.create(arena.pod("thief", scheduler, cpu=8))
    arena.until_rejected(thief)
    last = arena.create(arena.gang("train", 4, scheduler, cpu=8)[3])
    arena.until_bound([*early, *last])
    assert arena.bound(thief) == {}
    arena.delete(*early)
    arena.until_bound(thief)


class TestFromAJob:
    """A single annotation in a Job's template makes its pods a gang."""

    @staticmethod
    def job(arena: Arena, name: str, size: int, scheduler: str, quorum: int | None = None, **more: object) -> Json:
        template = arena.pod("unused", scheduler, quorum=size if quorum is None else quorum, **more)
        del template["metadata"]["name"]
        template["metadata"]["labels"] = {}
        body = {
            "metadata": {"name": name},
            "spec": {"completions": size, "parallelism": size, "template": template},
        }
        return arena.api.post(f"/apis/batch/v1/namespaces/{arena.namespace}/jobs", body)

    @both
    def test_they_are_bound_all_or_none_and_the_job_completes(self, arena: Arena, scheduler: str) -> None:
        arena.nodes(7)
        self.job(arena, "train", 8, scheduler, cpu=8, run_seconds=1)
        names = (
            eventually(lambda: found if len(found := list(arena.pods())) == 8 else None, what="the Job's pods") or []
        )
        arena.until_rejected(names)
        assert stays(lambda: arena.bound(), what="the pods bound") == {}
        arena.nodes(1)
        arena.until_bound(names)

        def complete() -> bool:
            status = arena.api.get(f"/apis/batch/v1/namespaces/{arena.namespace}/jobs/train")["status"]
            return "Complete" in {each["type"] for each in status.get("conditions", [])}

        eventually(complete, what="the Job's completion")
        report = arena.assert_witnessed()
        assert report.gangs[f"{arena.namespace}/job.train"].peak == 8

    def test_two_jobs_are_two_gangs(self, arena: Arena) -> None:
        arena.nodes(7)
        for name in ("one", "two"):
            self.job(arena, name, 6, EXTENDER, cpu=8, run_seconds=1)
        eventually(lambda: list(arena.phases(arena.pods()).values()).count("Succeeded") == 12, within=30)
        assert len(arena.report().gangs) == 2

    def test_jobs_of_one_name_and_of_two_groups_are_two_gangs(self, arena: Arena) -> None:
        arena.cluster_wide("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", OTHER_JOB_KIND)
        jobs = f"/apis/{OTHER_GROUP}/v1/namespaces/{arena.namespace}/jobs"
        arena.nodes(2)
        self.job(arena, "train", 1, EXTENDER, quorum=2)

        def owner() -> str | None:
            try:
                made = arena.api.post(jobs, {**OTHER_JOB, "metadata": {"name": "train"}})
            except ApiError:
                return None
            return str(made["metadata"]["uid"])

        uid = eventually(owner, what="the kind being served")
        reference = {**OTHER_JOB, "name": "train", "uid": uid, "controller": True}
        pods = [arena.pod(f"other-{number}", quorum=2) for number in range(2)]
        for each in pods:
            each["metadata"]["ownerReferences"] = [reference]
        first = arena.create(pods[0])
        names = [f"job.train@{group}" for group in ("batch", OTHER_GROUP)]
        assert [len(arena.gang_state(name)["members"]) for name in names] == [1, 1]
        assert stays(lambda: arena.bound(), what="the pods bound") == {}
        others = [*first, *arena.create(pods[1])]
        assert arena.until_bound(others).keys() == arena.bound().keys() == set(others)


class TestMalformed:
    """What a pod says wrongly about its gang: rejected, told how to mend it, and in nobody's way."""

    CASES = (
        ({"gang": "train", "quorum": "eight"}, "escher.dev/gang-min-member", 'write for example'),
        ({"gang": "train", "quorum": 0}, "escher.dev/gang-min-member", "write for example"),
        ({"gang": "train", "quorum": "1e3"}, "escher.dev/gang-min-member", "write for example"),
        ({"gang": "train"}, "escher.dev/gang-min-member", "add the annotation"),
        ({"quorum": 2}, "escher.dev/gang-min-member", "add the label escher.dev/gang"),
        ({"gang": "train", "quorum": 1, "timeout": 600}, "escher.dev/gang-timeout-seconds", "write less than 60"),
    )  # fmt: skip

    @pytest.mark.parametrize(("said", "key", "remedy"), CASES, ids=[str(each[0]) for each in CASES])
    def test_it_is_rejected_and_told_how_to_mend_it(
        self, arena: Arena, said: dict[str, Any], key: str, remedy: str
    ) -> None:
        arena.nodes(1)
        [bad] = arena.create(arena.pod("bad", EXTENDER, **said))
        good = arena.create(arena.pod("good"))
        message = arena.until_rejected([bad])[bad]
        assert key in message
        arena.until_bound(good)
        events = eventually(lambda: arena.events("InvalidGang"), what="the event") or []
        assert {each["regarding"]["name"] for each in events} == {bad}
        assert all(key in each["note"] and remedy in each["note"] for each in events)
        # Constant reasons: nobody is woken by being rejected.
        calls = quiet(lambda: arena.service.calls("filter"))
        assert stays(lambda: arena.service.calls("filter"), what="the number of filter calls") == calls
        assert arena.bound([bad]) == {}

    def test_once_mended_it_is_placed(self, arena: Arena) -> None:
        arena.nodes(2)
        members = arena.create(*arena.gang("train", 2, cpu=8))
        arena.until_bound(members)
        [bad] = arena.create(arena.pod("late", gang="later", quorum="two"))
        arena.until_rejected([bad])
        arena.delete(members[0])
        arena.annotate(bad, gang_min_member="1")
        arena.until_bound([bad])
