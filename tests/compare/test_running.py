"""The comparison on the embedded cluster: every approach places its gangs, and the measuring measures what is there."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest

from extender.esl import Times
from extender.kube.client.connection import Connection
from extender.kube.client.credentials import Credentials, from_kubeconfig
from lab.compare import replay, running
from lab.compare.plan import Plan
from lab.compare.running import Outcome, run
from lab.compare.trials import workloads
from lab.compare.trials.approaches import MADE, REAL_ONLY, ways
from lab.compare.trials.outside import Blind, Watched
from lab.compare.trials.workloads import GANGS_OF_A_BURST, WORKLOADS, Ask
from lab.controlplane.clusters import EmbeddedCluster, LocalCluster
from tests.compare.made_trace import busy, node, written

NODES, SIZE = 10, 4
EVERYBODY = [each for each in MADE if each not in REAL_ONLY]


@pytest.fixture(scope="module")
def cluster(state_folder: Path) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster.start(nodes=NODES) as made:
        yield made


def outcomes(cluster: LocalCluster, plan: Plan) -> list[Outcome]:
    plan.check()
    found: list[Outcome] = []
    asyncio.run(run(cluster, plan, plan.trials(), found.append))
    return found


def latency(outcome: Outcome) -> float:
    bound = [pod.bound for pod in outcome.pods.values() if pod.gang and pod.bound is not None]
    return max(bound) - outcome.began


@pytest.mark.longer
def test_every_approach_places_its_gang_and_leaves_nothing(cluster: EmbeddedCluster) -> None:
    found = outcomes(cluster, Plan(cluster="embedded", sizes=[SIZE], approaches=EVERYBODY, rounds=1, warm_up=0))
    assert {each.trial.approach for each in found} == set(EVERYBODY)
    for each in found:
        assert each.done, each
        members = [pod for pod in each.pods.values() if pod.gang]
        assert len(members) == SIZE
        assert all(pod.node and pod.bound and pod.running and pod.gone for pod in members)
        assert sum(pod.cpu for pod in each.pods.values()) == SIZE * 0.5
        ghosts = len(each.pods) - SIZE
        assert ghosts == (SIZE if each.trial.approach in ("appspace", "libspace") else 0)
        assert 0 < latency(each) <= each.seconds
        # Created, bound, seen running and deleted: each at least.
        assert each.costs.writes is not None
        assert each.costs.writes >= 2 * SIZE
        assert each.costs.cpu_scheduler is None
    assert cluster.admin.list_all("/api/v1/pods") == []
    by_name = {each.trial.approach: each for each in found}
    assert (by_name["appspace"].costs.writes or 0) > (by_name["extender"].costs.writes or 0)


@pytest.mark.longer
def test_a_gang_without_room_is_stuck_and_what_is_left_of_it_goes(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workloads, "_patience", lambda size: 1.0)
    too_large = Plan(
        cluster="embedded",
        sizes=[NODES + 1],
        approaches=["ungrouped", "extender", "libspace"],
        rounds=1,
        warm_up=0,
        cpu="8",
    )
    found = {each.trial.approach: each for each in outcomes(cluster, too_large)}
    assert not any(each.done for each in found.values())
    bound = {name: sum(bool(pod.gang and pod.bound) for pod in each.pods.values()) for name, each in found.items()}
    assert bound == {"ungrouped": NODES, "extender": 0, "libspace": 0}
    assert cluster.admin.list_all("/api/v1/pods") == []


def test_where_nobody_watches_any_more_no_trial_is_told(state_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is seen then, and would be written down as gangs that were never placed."""

    @asynccontextmanager
    async def dead(kubeconfig: Path) -> AsyncIterator[Watched]:
        made = Watched()
        made.over = True
        yield made

    monkeypatch.setattr(running, "watching", dead)
    plan = Plan(cluster="embedded", sizes=[1], approaches=["ungrouped"], rounds=1, warm_up=0)
    with EmbeddedCluster.start(nodes=1) as made, pytest.raises(Blind):
        outcomes(made, plan)


DELAY = 0.05
SLOW = f"""
    import time


    class Slow:
        name = "slow"
        decides = True

        def __init__(self):
            self.delayed = set()

        def filter(self, pod, facts):
            # It is asked more than once of a pod: when kube-scheduler filters, and again before the bind.
            if pod.uid not in self.delayed:
                self.delayed.add(pod.uid)
                time.sleep({DELAY})
            return None
"""


@pytest.mark.longer
def test_a_known_delay_comes_out_as_that_delay_and_nobody_else_has_it(state_folder: Path, tmp_path: Path) -> None:
    """kube-scheduler filters one pod after the other, so that the last of four has waited for it four times."""
    (tmp_path / "slow.py").write_text(dedent(SLOW))
    settings = tmp_path / "escher.yaml"
    settings.write_text(f"policies_folder: {tmp_path}\npolicies: ['slow:Slow']\n")
    plan = Plan(cluster="embedded", sizes=[SIZE], approaches=["ungrouped", "through"], rounds=5, warm_up=1)
    medians: dict[bool, dict[str, float]] = {}
    for slow in (False, True):
        with EmbeddedCluster.start(nodes=NODES, service_arguments=["--config", str(settings)] if slow else []) as made:
            found = [each for each in outcomes(made, plan) if each.trial.repetition >= 0]
        medians[slow] = {
            name: statistics.median(latency(each) for each in found if each.trial.approach == name)
            for name in plan.approaches
        }
    more = {name: medians[True][name] - medians[False][name] for name in plan.approaches}
    assert more["through"] == pytest.approx(SIZE * DELAY, rel=0.3)
    assert abs(more["ungrouped"]) < DELAY / 2


@pytest.mark.longer
def test_who_checks_at_bind_alone_has_conflicts_and_who_reserves_at_filter_has_none(cluster: EmbeddedCluster) -> None:
    """Several pods are filtered before the first of them is bound, and all were told of the same free unit. Of the
    profile whose resources kube-scheduler counts as well, no two are. On a busy machine binds may keep up with filters
    for a whole trial, so that there may have to be more of them."""
    approaches = ["extender", "optimistic", "ledger", "optimistic-ledger"]
    plan = Plan(cluster="embedded", nodes=[NODES], workloads=["claims"], approaches=approaches, rounds=1, warm_up=0)
    refused = dict.fromkeys(approaches, 0.0)
    for seed in range(5, 11):
        for each in outcomes(cluster, replace(plan, seed=seed)):
            assert each.done, each
            assert each.costs.binds is not None
            assert each.reserved is not None
            refused[each.trial.approach] += each.costs.binds - len(each.asks)
        if refused["optimistic-ledger"]:
            break
    assert refused.pop("optimistic-ledger") > 0
    assert set(refused.values()) == {0}
    assert cluster.admin.list_all("/api/v1/pods") == []


@pytest.mark.longer
@pytest.mark.parametrize("workload", [each for each in WORKLOADS if each not in ("single", "trace")])
def test_every_workload_ends_and_leaves_nothing(cluster: EmbeddedCluster, workload: str) -> None:
    approaches = ["ungrouped", "libspace", "extender"]
    plan = Plan(
        cluster="embedded", nodes=[NODES], workloads=[workload], sizes=[3], approaches=approaches, rounds=1, warm_up=0,
        gangs=12 if workload == "burst" else GANGS_OF_A_BURST,
    )  # fmt: skip
    for each in outcomes(cluster, plan):
        work = plan.work(each.trial)
        assert each.done or each.trial.approach == "ungrouped", each
        assert len(each.asks) == len(work.asks)
        lost = sum(bool(pod.gang) for pod in each.pods.values()) - sum(ask.size for ask in work.asks)
        assert not each.done or (lost >= 1 if work.losses else lost == 0)
    assert cluster.admin.list_all("/api/v1/pods") == []
    assert len(cluster.admin.list_all("/api/v1/nodes")) == NODES


@pytest.mark.longer
def test_gangs_of_a_burst_are_asked_for_in_their_order_and_not_all_at_once(cluster: EmbeddedCluster) -> None:
    plan = Plan(
        cluster="embedded", nodes=[NODES], workloads=["burst"], sizes=[3], approaches=["ungrouped", "extender"],
        rounds=1, warm_up=0, gangs=20,
    )  # fmt: skip
    for each in outcomes(cluster, plan):
        assert each.done, each
        asked = [moment for _, moment in each.asks.values()]
        assert [ask.name.rpartition("-")[2] for ask, _ in each.asks.values()] == [str(number) for number in range(20)]
        # Of five that are under way one has to be there before another is asked for.
        first = min(pod.created for pod in each.pods.values())
        assert asked == sorted(asked)
        assert asked[-1] > first
        # To ask for it would be measured.
        assert each.reserved is None


@pytest.mark.longer
def test_other_gangs_wait_meanwhile_and_leave_with_the_last_trial(cluster: EmbeddedCluster) -> None:
    waiting = 3
    plan = Plan(
        cluster="embedded", nodes=[NODES], sizes=[2], approaches=["ungrouped", "extender"], rounds=1, warm_up=0,
        waiting=waiting,
    )  # fmt: skip
    plan.check()
    seen: list[tuple[int, int]] = []

    def take(outcome: Outcome) -> None:
        pods = cluster.admin.list_all("/api/v1/pods")
        bound = [bool(pod["spec"].get("nodeName")) for pod in pods if pod["metadata"]["name"].startswith("waits-")]
        seen.append((len(bound), sum(bound)))
        assert outcome.done
        assert len(outcome.pods) == 2

    asyncio.run(run(cluster, plan, plan.trials(), take))
    assert seen == [(2 * waiting, 0)] * 2
    assert cluster.admin.list_all("/api/v1/pods") == []


def test_what_ghosts_give_back_is_counted(cluster: EmbeddedCluster) -> None:
    async def tried() -> None:
        credentials = await Credentials.load(from_kubeconfig(cluster.kubeconfig))
        async with Connection(credentials) as connection, AsyncExitStack() as stack:
            times = Times(reserve_within=0.3, first_pause=0.1)
            made = (await ways(connection, ["libspace"], stack, 1, times))["libspace"]
            too_large = Ask("too-large", NODES + 1, {"cpu": "8"})
            assert made.rollbacks is not None
            assert made.rollbacks.count == 0
            await made.gangs.submit(too_large)
            for _ in range(400):
                if made.rollbacks.count:
                    break
                await asyncio.sleep(0.05)
            assert made.rollbacks.count > 0
            await made.gangs.end(too_large)

    asyncio.run(tried())
    assert cluster.admin.list_all("/api/v1/pods") == []


@pytest.mark.longer
def test_a_window_of_a_trace_is_replayed_on_its_nodes(
    state_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "SECONDS", 3.0)
    nodes = [*(node(f"n{number}", gpus=2) for number in range(6)), *(node(f"m{number}", cpu=8) for number in range(2))]
    folder = written(tmp_path, nodes, busy())
    approaches = ["ungrouped", "libspace", "extender"]
    plan = Plan(
        cluster="embedded", workloads=["trace"], approaches=approaches, rounds=1, warm_up=0, trace=folder, seed=2
    )
    with EmbeddedCluster.start(node_trace=replay.nodes_file(folder)) as cluster:
        found = outcomes(cluster, plan)
        assert cluster.admin.list_all("/api/v1/pods") == []
    for each in found:
        work = plan.work(each.trial)
        assert each.done, each
        assert work.standing
        members = [pod for pod in each.pods.values() if pod.gang]
        assert len(members) == sum(ask.size for ask in work.asks)
        assert not any(name.startswith("standing") for name in each.pods)
        # What stands there makes it no longer.
        assert each.seconds < replay.SECONDS + 5
