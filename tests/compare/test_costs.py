"""What counters say, and what they do not."""

from __future__ import annotations

import os
import time

from lab.compare.costs import Costs, cpu_seconds, schedulers_of, total, writes

METRICS = """\
# HELP apiserver_request_total Counter of apiserver requests
apiserver_request_total{code="201",resource="pods",verb="POST"} 8
apiserver_request_total{code="409",resource="pods",verb="POST"} 3
apiserver_request_total{code="201",resource="events",verb="POST"} 40
apiserver_request_total{code="200",resource="leases",verb="PUT"} 5
apiserver_request_total{code="200",resource="nodes",verb="PATCH"} 2
apiserver_request_total{code="200",resource="pods",verb="LIST"} 7
scheduler_schedule_attempts_total{profile="a \\"quoted\\" one",result="scheduled"} 6
scheduler_schedule_attempts_total{profile="b",result="error"} 1
"""


def test_writes_are_those_that_succeeded_without_leases_and_events() -> None:
    assert writes(METRICS) == 10


def test_a_counter_that_is_not_there_is_none_and_not_0() -> None:
    assert total(METRICS, "apiserver_request_body_size_bytes_sum") is None
    assert total(METRICS, "scheduler_schedule_attempts_total") == 7
    assert writes("") is None


def test_a_difference_of_what_is_not_known_is_not_known() -> None:
    before, after = Costs(writes=3, cpu_service=1.5), Costs(writes=10, cpu_service=2.0, attempts=4)
    assert after.since(before) == Costs(writes=7, cpu_service=0.5)


def test_a_process_spends_what_the_kernel_says() -> None:
    before, until = cpu_seconds(os.getpid()), time.process_time() + 0.05
    while time.process_time() < until:
        pass
    # In hundredths of a second, rounded.
    assert 0.03 <= cpu_seconds(os.getpid()) - before < 5


def test_every_kube_scheduler_counts_and_nobody_else() -> None:
    ours = ["kube-scheduler", "kube-scheduler-resources", "kube-scheduler-coscheduling"]
    assert schedulers_of(dict.fromkeys(["etcd", *ours, "kube-apiserver", "service"], 1)) == ours
