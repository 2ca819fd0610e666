"""Kinds that cannot be read: it is told which, since when, and what is done meanwhile. A setting names each of them."""

from __future__ import annotations

import asyncio
from typing import Any, get_args

import pytest
from structlog.testing import capture_logs

from extender.adapters.kubernetes.reflectors.safety_kinds import START_SECONDS
from extender.adapters.kubernetes.reflectors.unreadable_kinds import MEANWHILE, NEVER_READ, TOLD_AFTER
from extender.app.contracts.api import Transact
from extender.app.contracts.errors import Invalid
from extender.kube.errors import Refused
from extender.settings.settings import OptionalKind, Settings
from kubesim.apiserver.serving.faults import Fault
from kubesim.kinds import POD, PRIORITY_CLASS
from lab.simulated_service import NoAnswer, ServiceLife
from lab.simulation import SERVICE, Simulation
from loadtests.shared.pods import pod
from tests.kubesim.test_forbidden import Rights, readyz
from tests.kubesim.test_transactions import WISHES
from tests.kubesim.until import until

pytestmark = pytest.mark.anyio

ALL = ["nodes", "pods", "ephemeralresources", *get_args(OptionalKind)]


def refused(path: str) -> Fault:
    return Fault(error=Refused(403, "User escher cannot list"), user=SERVICE, path=path, times=None)


def without(*kinds: str) -> Settings:
    return Settings.model_validate({"without": kinds})


class WithoutRights(Simulation):
    """The service may not read what has this path, from its start on."""

    def __init__(self, path: str, **given: Any) -> None:
        super().__init__(nodes=2, **given)
        self.fault = refused(path)

    async def _live(self, service: ServiceLife) -> None:
        self.cluster.api.faults.add(self.fault)
        await super()._live(service)

    def grant(self) -> None:
        self.cluster.api.faults.remove(self.fault)


# -- rights that are taken away --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [kind for kind in ALL if kind != "podgroups"])
async def test_a_kind_that_cannot_be_read_any_more_is_told_with_what_is_done_meanwhile_until_it_can_be(
    kind: str,
) -> None:
    async with Simulation(nodes=2) as simulation:
        await asyncio.sleep(60)
        assert (await readyz(simulation)).json()["lost"] == {}
        rights = Rights(simulation, rf"/{kind}\?")
        rights.take()
        with capture_logs() as logged:
            await asyncio.sleep(300)
            lost = (await readyz(simulation)).json()["lost"]
            assert list(lost) == [kind]
            # A watch that is open says something within a minute, and fails then.
            assert 300 - 60 - 10 <= lost[kind]["seconds"] <= 300
            assert "User escher cannot list" in lost[kind]["why"]
            assert lost[kind]["meanwhile"] == MEANWHILE.get(kind, lost[kind]["meanwhile"]) != ""
            rights.give_back()
            await asyncio.sleep(15)
        assert (await readyz(simulation)).json()["lost"] == {}
        said = [line for line in logged if line["event"].startswith("a kind ") and line["kind"] == kind]
        assert [line["event"] for line in said] == ["a kind cannot be read", "a kind can be read again"]
        assert said[0]["meanwhile"] == lost[kind]["meanwhile"]


async def test_what_is_refused_for_a_moment_is_no_loss() -> None:
    async with Simulation(nodes=2) as simulation:
        await asyncio.sleep(60)
        rights = Rights(simulation, r"/jobs\?")
        rights.take()
        await asyncio.sleep(60 + TOLD_AFTER / 2)
        rights.give_back()
        with capture_logs() as logged:
            await asyncio.sleep(60)
        assert [line for line in logged if line["event"].startswith("a kind ")] == []


# -- what the settings do without ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", get_args(OptionalKind))
async def test_with_every_optional_kind_the_setting_says_that_it_is_not_read_nor_waited_for(kind: str) -> None:
    began = asyncio.get_running_loop().time()
    settings = without(kind)
    async with WithoutRights(rf"/{kind}\?|{kind}.x-k8s.io", settings=settings) as simulation:
        await until(simulation.application.ready, within=10)
        assert asyncio.get_running_loop().time() - began < START_SECONDS / 4
        await asyncio.sleep(100)
        said = (await readyz(simulation)).json()
        assert (said["without"], said["lost"]) == ([kind], {})
        for number in range(2):
            await simulation.create(pod(f"train-{number}", gang="train", quorum=2), POD)
        await until(lambda: bound(simulation, "train") == 2, within=30)


async def test_without_any_of_them_it_places_gangs() -> None:
    settings = without(*get_args(OptionalKind))
    everything = "|".join(rf"/{kind}\?" for kind in get_args(OptionalKind))
    async with WithoutRights(everything, settings=settings) as simulation:
        for number in range(2):
            await simulation.create(pod(f"train-{number}", gang="train", quorum=2), POD)
        await until(lambda: bound(simulation, "train") == 2, within=30)


@pytest.mark.parametrize("stated", [True, False], ids=["stated", "refused"])
async def test_without_intents_a_transaction_over_several_objects_is_refused_with_what_to_do(stated: bool) -> None:
    settings = without(*["transactionintents"] * stated)
    async with WithoutRights("/transactionintents", settings=settings) as simulation:
        await until(simulation.application.ready, within=START_SECONDS + 20)
        with pytest.raises(Invalid, match=r"docs/operations\.md#permissions"):
            await simulation.application.management.transactions.transact(Transact(operations=WISHES))


async def test_intents_of_which_discovery_says_nothing_either_are_gone_without_when_a_start_is_over() -> None:
    """As where discovery is closed to service accounts."""
    closed = r"/transactionintents|/apis/escher.dev/v1alpha1$"
    async with WithoutRights(closed, settings=without("escherpolicies")) as simulation:
        await until(simulation.application.ready, within=START_SECONDS + 20)
        said = (await readyz(simulation)).json()
        assert said["without"] == ["escherpolicies", "transactionintents"]
        assert said["lost"]["transactionintents"]["meanwhile"] == NEVER_READ["transactionintents"]
        simulation.grant()
        await asyncio.sleep(30)
        said = (await readyz(simulation)).json()
        assert (said["without"], said["lost"]) == (["escherpolicies"], {})


async def test_where_daemon_sets_are_not_read_their_pods_leave_by_their_priority() -> None:
    async with WithoutRights("/daemonsets", settings=without("daemonsets")) as simulation:
        made = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}}
        await simulation.create(made | {"value": 1000}, PRIORITY_CLASS)
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "logs", "uid": "u", "controller": True}
        for number in range(2):
            low = pod(f"low-{number}", cpu=8)
            await simulation.create(low | {"metadata": low["metadata"] | {"ownerReferences": [owner]}}, POD)
        await until(lambda: bound(simulation, "low") == 2)
        for number in range(2):
            await simulation.create(pod(f"high-{number}", gang="high", quorum=2, cpu=8, priority_class="high"), POD)
        await until(lambda: bound(simulation, "high") == 2, within=120)


# -- our own kind at the start ---------------------------------------------------------------------------------------


async def test_ephemeral_resources_that_are_refused_at_the_start_are_waited_for_and_counted_from_readiness_on() -> None:
    late = WithoutRights(r"/ephemeralresources\?")
    entering = asyncio.ensure_future(late.__aenter__())
    await asyncio.sleep(1)
    made = {"apiVersion": "escher.dev/v1alpha1", "kind": "EphemeralResource", "metadata": {"name": "data"}}
    path = "/apis/escher.dev/v1alpha1/namespaces/default/ephemeralresources"
    await late.ask("POST", path, made | {"spec": {"nodes": {"node-1": 1}}})
    await asyncio.sleep(120)
    assert not late.application.ready()
    late.grant()
    await until(late.application.ready, within=20)
    await entering
    asks: dict[str, Any] = {"escher.dev/default.data": 1}
    for number in range(2):
        await late.create(pod(f"wants-{number}", "escher-ledger", **asks), POD)
    await until(lambda: bound(late, "wants") == 1, within=30)
    await asyncio.sleep(30)
    assert bound(late, "wants") == 1
    await late.__aexit__(None, None, None)


async def test_ephemeral_resources_that_are_refused_for_good_keep_it_from_being_ready_and_nothing_is_decided() -> None:
    late = WithoutRights(r"/ephemeralresources\?")
    entering = asyncio.ensure_future(late.__aenter__())
    await asyncio.sleep(1800)
    said = await readyz(late)
    assert said.status_code == 503
    assert "ephemeralresources: User escher cannot list" in said.json()["detail"]
    assert "ephemeralresources" in said.json()["waits_for"]
    assert late.service is not None
    with pytest.raises(NoAnswer):
        await late.service.call("filter", b"{}")
    late.grant()
    await entering
    await until(late.application.ready, within=20)
    await late.__aexit__(None, None, None)


def bound(simulation: Simulation, prefix: str) -> int:
    pods = simulation.cluster.api.store.list(POD, "default")
    return sum(bool(each["spec"].get("nodeName")) for each in pods if each["metadata"]["name"].startswith(prefix))
