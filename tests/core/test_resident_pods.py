"""What stays on the nodes: for whose leaving no gang waits, and for whose it does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.core.cluster import Owner, Pod
from extender.core.gangs.placement.resident_pods import LONG_RUNNING_SECONDS, ResidentPods
from extender.kube.names import NodeName, PodUid
from tests.builders import AGENT, NOW, pod, units

N0 = NodeName("n0")
DAEMON, JOB, WEB = AGENT, Owner("Job", "train", "j"), Owner("ReplicaSet", "web", "r")
LONG_AGO = NOW - LONG_RUNNING_SECONDS


class Place:
    """A table of pods, and what stays of them."""

    def __init__(self, *, preempts: bool = True) -> None:
        self.pods: dict[PodUid, Pod] = {}
        self.staying = ResidentPods(self.pods, lambda pod: pod.scheduler == "escher", preempts=preempts)
        self.staying.comes_again = lambda pod: pod.owner == DAEMON
        self.staying.on_time(NOW)

    def see(self, pod: Pod) -> None:
        before = self.pods.get(pod.uid)
        self.pods[pod.uid] = pod
        self.staying.observe(pod, before)

    def lose(self, uid: PodUid) -> None:
        del self.pods[uid]
        self.staying.forget(uid)

    def cpu(self, priority: int | None = None) -> int:
        assert list(self.staying.violations()) == []
        return dict(self.staying.on(N0, priority)).get(next(iter(units(cpu=1))), 0)


@pytest.mark.parametrize(
    ("facts", "stays"),
    [
        ({"owner": DAEMON}, True),
        ({"owner": DAEMON, "deleting": True}, True),
        ({"scheduler": "default-scheduler"}, True),
        ({"scheduler": "default-scheduler", "deleting": True}, False),
        ({"owner": WEB}, False),
        ({"owner": WEB, "bound_at": LONG_AGO}, True),
        ({"owner": WEB, "bound_at": LONG_AGO + 1}, False),
        ({"bound_at": LONG_AGO}, True),
        ({"bound_at": 1.0}, True),
        ({"bound_at": 0.0}, False),
        ({"owner": WEB, "bound_at": LONG_AGO, "deleting": True}, False),
        ({"owner": JOB, "bound_at": LONG_AGO}, False),
        ({"owner": DAEMON, "node": None}, False),
    ],
)
def test_a_pod_stays_or_may_leave(facts: Mapping[str, Any], stays: bool) -> None:
    place = Place()
    place.see(pod("one", **{"node": N0, "bound_at": NOW - 60, **facts}))
    assert place.cpu() == (1000 if stays else 0)


def test_who_has_run_for_long_does_not_stay_for_a_gang_that_may_preempt_it() -> None:
    place = Place()
    place.see(pod("old", node=N0, bound_at=LONG_AGO, priority=5))
    place.see(pod("daemon", {"cpu": 100}, node=N0, owner=DAEMON))
    assert [place.cpu(priority) for priority in (None, 5, 6)] == [1100, 1100, 100]


def test_where_nobody_is_evicted_for_gangs_it_stays_for_all() -> None:
    place = Place(preempts=False)
    place.see(pod("old", node=N0, bound_at=LONG_AGO, priority=5))
    assert place.cpu(6) == 1000


def test_a_pod_grows_old_and_is_judged_anew_when_the_time_of_day_is_set_back() -> None:
    place = Place()
    place.see(pod("one", node=N0, bound_at=NOW))
    place.staying.on_time(NOW + LONG_RUNNING_SECONDS - 1)
    assert place.cpu() == 0
    place.staying.on_time(NOW + LONG_RUNNING_SECONDS)
    assert place.cpu() == 1000
    place.staying.on_time(NOW)
    assert place.cpu() == 0
    place.staying.on_time(NOW + LONG_RUNNING_SECONDS)
    assert place.cpu() == 1000


def test_a_pod_grows_old_though_since_when_it_runs_was_not_told_at_first() -> None:
    place = Place()
    one = pod("one", node=N0)
    place.see(one)
    place.see(replace(one, bound_at=NOW))
    place.staying.on_time(NOW + LONG_RUNNING_SECONDS)
    assert place.cpu() == 1000


def test_counts_tell_when_more_stays_and_when_less() -> None:
    place = Place()
    daemon = pod("daemon", node=N0, owner=DAEMON)
    place.see(daemon)
    place.see(replace(daemon, labels={"some": "news"}))
    assert (place.staying.grown, place.staying.shrunk) == (1, 0)
    other = pod("other", node=N0, owner=DAEMON)
    place.see(other)
    assert (place.staying.grown, place.staying.shrunk) == (2, 0)
    place.lose(daemon.uid)
    assert (place.staying.grown, place.staying.shrunk, place.cpu()) == (2, 1, 1000)
    place.lose(other.uid)
    assert (place.staying.grown, place.staying.shrunk, place.cpu()) == (2, 2, 0)


def test_the_nodes_are_told_once_on_which_something_else_stays() -> None:
    place = Place()
    daemon = pod("daemon", node=N0, owner=DAEMON)
    place.see(daemon)
    place.see(pod("web", node=NodeName("n1"), owner=WEB))
    assert list(place.staying.drain_changes()) == [N0]
    place.see(replace(daemon, labels={"some": "news"}))
    assert list(place.staying.drain_changes()) == []
    place.see(replace(daemon, node=NodeName("n1")))
    assert sorted(place.staying.drain_changes()) == [N0, "n1"]
    place.lose(daemon.uid)
    place.staying.forget(daemon.uid)
    assert list(place.staying.drain_changes()) == ["n1"]


def test_whether_anybody_stays_and_who_is_known() -> None:
    place = Place()
    daemon, web = pod("daemon", node=N0, owner=DAEMON), pod("web", node=N0, owner=WEB)
    place.see(web)
    assert not place.staying.anybody()
    place.see(daemon)
    assert place.staying.anybody()
    assert daemon.uid in place.staying
    assert web.uid not in place.staying
    place.lose(daemon.uid)
    assert not place.staying.anybody()


def test_one_that_is_on_no_node_any_more_does_not_stay() -> None:
    place = Place()
    daemon = pod("daemon", node=N0, owner=DAEMON)
    place.see(daemon)
    place.see(replace(daemon, node=None))
    assert (place.cpu(), place.staying.shrunk) == (0, 1)


def test_what_stays_is_the_sum_of_all_whom_a_gang_may_not_make_leave() -> None:
    place = Place()
    for number, priority in enumerate((0, 5, 5, 9)):
        asks = {"cpu": 10**number, "nvidia.com/gpu": number}
        place.see(pod(f"p{number}", asks, node=N0, bound_at=LONG_AGO, priority=priority))
    assert [place.cpu(priority) for priority in (None, 0, 1, 5, 6, 9, 10)] == [1111, 1111, 1110, 1110, 1000, 1000, 0]
    assert dict(place.staying.on(N0, 9)) == units({"cpu": 1000, "nvidia.com/gpu": 3}, pods=1)
    assert dict(place.staying.on(NodeName("n1"), None)) == {}
    place.lose(PodUid("uid-p1"))
    assert dict(place.staying.on(N0, 5)) == units({"cpu": 1100, "nvidia.com/gpu": 5}, pods=2)


def test_who_was_bound_before_the_time_of_day_was_set_back_is_judged_by_the_new_time() -> None:
    place = Place()
    for name, bound_at in (("old", LONG_AGO), ("young", NOW)):
        place.see(pod(name, node=N0, bound_at=bound_at))
    assert place.cpu() == 1000
    place.staying.on_time(NOW - 10)
    assert place.cpu() == 0
    place.staying.on_time(NOW - 1)
    assert place.cpu() == 0
    place.staying.on_time(NOW)
    assert place.cpu() == 1000
    place.staying.on_time(NOW + LONG_RUNNING_SECONDS)
    assert place.cpu() == 2000


def test_one_that_is_gone_when_it_would_have_grown_old_is_left_out() -> None:
    place = Place()
    place.see(pod("gone", node=N0, bound_at=NOW - 60))
    place.see(pod("there", node=N0, bound_at=NOW))
    place.lose(PodUid("uid-gone"))
    place.staying.on_time(NOW + LONG_RUNNING_SECONDS)
    assert place.cpu() == 1000


def test_of_those_that_come_and_go_all_day_few_are_kept_in_mind_and_who_stays_grows_old() -> None:
    place = Place()
    for number in range(10):
        place.see(pod(f"stays-{number}", owner=WEB, node=N0, bound_at=NOW + number))
    for number in range(10_000):
        place.see(pod("comes", uid=PodUid(f"u{number}"), owner=WEB, node=N0, bound_at=NOW))
        place.lose(PodUid(f"u{number}"))
    assert len(place.staying._growing_old) < 1_100
    place.staying.on_time(NOW + LONG_RUNNING_SECONDS + 4)
    assert place.cpu() == 5_000


def test_the_audit_sees_a_total_that_is_not_what_the_pods_add_up_to() -> None:
    place = Place()
    daemon = pod("daemon", node=N0, owner=DAEMON)
    place.see(daemon)
    del place.pods[daemon.uid]
    [violation] = place.staying.violations()
    assert violation.invariant == "staying"
    assert violation.detail == "n0: {inf: {'cpu': 1000, 'pods': 1}}, recounted None"
    # It is judged as those are that it is compared with.
    place.pods[daemon.uid] = daemon
    for other in (Place(preempts=False), Place()):
        other.see(pod("old", node=N0, bound_at=LONG_AGO))
        assert list(other.staying.violations()) == []
    assert list(place.staying.violations()) == []


def test_for_how_long_a_pod_has_to_run_may_be_set() -> None:
    one = pod("one", node=N0, bound_at=NOW - 60)
    staying = ResidentPods({one.uid: one}, long_running=60.0)
    staying.on_time(NOW - 1)
    staying.observe(one, None)
    assert one.uid not in staying
    staying.on_time(NOW)
    assert one.uid in staying
    assert list(staying.violations()) == []


@given(
    st.lists(
        st.one_of(
            st.builds(
                lambda number, node, owner, at, priority, deleting: pod(
                    f"p{number}",
                    {"cpu": 100 * (number + 1)},
                    node=node,
                    owner=owner,
                    bound_at=at,
                    priority=priority,
                    deleting=deleting,
                ),
                st.integers(0, 3),
                st.sampled_from((N0, NodeName("n1"), None)),
                st.sampled_from((None, DAEMON, JOB, WEB)),
                st.sampled_from((LONG_AGO, NOW - 60, NOW)),
                st.integers(0, 2),
                st.booleans(),
            ),
            st.integers(0, 3),
            st.floats(NOW - 1e5, NOW + 2e5),
        ),
        max_size=25,
    )
)
def test_totals_are_what_the_pods_add_up_to_whatever_happens(steps: list[Any]) -> None:
    place = Place()
    for step in steps:
        if isinstance(step, Pod):
            place.see(step)
        elif isinstance(step, float):
            place.staying.on_time(step)
        elif (uid := PodUid(f"uid-p{step}")) in place.pods:
            place.lose(uid)
        assert list(place.staying.violations()) == []
