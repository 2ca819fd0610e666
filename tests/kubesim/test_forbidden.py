"""Rights that come late, and rights that go and come back: what narrows what may be done is never gone without."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from extender.adapters.kubernetes.reflectors.safety_kinds import START_SECONDS
from extender.app.cache.staleness import DESTROYS_WITHIN
from extender.kube.client.requests import MERGE_PATCH
from extender.kube.errors import Refused, Unavailable
from extender.settings.settings import Settings
from kubesim.apiserver.serving.faults import Fault
from kubesim.kinds import NAMESPACE, POD, PRIORITY_CLASS, Json
from lab.simulated_service import NoAnswer, ServiceLife
from lab.simulation import SERVICE, Simulation
from loadtests.shared.pods import pod
from tests.kubesim.until import until

pytestmark = pytest.mark.anyio

SECONDS = 3.0
FORBIDDEN = Refused(403, "User escher cannot list: RBAC: clusterrole not found")
OPTIONAL = ("/namespaces", "/escherpolicies", "/podgroups|scheduling.x-k8s.io", "/jobs", "/poddisruptionbudgets")
POLICIES = "/apis/escher.dev/v1alpha1/namespaces/team/escherpolicies"


def fault(path: str = "", error: Exception = FORBIDDEN) -> Fault:
    return Fault(error=error, user=SERVICE, path=path, times=None)  # type: ignore[arg-type]


class LateRights(Simulation):
    """A cluster with a policy and a switched namespace, of which the service may not read what has this path."""

    def __init__(self, late: Fault, seconds: float = SECONDS, **given: Any) -> None:
        super().__init__(nodes=2, **given)
        self._late = late
        self._seconds = seconds

    async def _live(self, service: ServiceLife) -> None:
        await self.create(namespace("team", {"escher.dev/preempt": "off"}), NAMESPACE)
        spec = {"type": "anti-affinity", "selector": {"matchLabels": {"app": "db"}}}
        made = {"apiVersion": "escher.dev/v1alpha1", "kind": "EscherPolicy", "metadata": {"name": "apart"}}
        await self.ask("POST", POLICIES, made | {"spec": spec})
        faults = self.cluster.api.faults
        faults.add(self._late)
        asyncio.get_running_loop().call_later(self._seconds, faults.remove, self._late)
        await super()._live(service)

    async def ready(self, within: float = 60.0) -> None:
        await until(self.application.ready, within=within, what="readiness")

    def of_team(self) -> list[Json]:
        return [each for each in self.cluster.api.store.list(POD, "team") if each["spec"].get("nodeName")]


def namespace(name: str, labels: dict[str, str]) -> Json:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def database(name: str) -> Json:
    made = pod(name, labels={"app": "db"}, selector={"kubernetes.io/hostname": "node-0"})
    return made | {"metadata": made["metadata"] | {"namespace": "team"}}


@pytest.mark.parametrize("path", ["", *OPTIONAL])
@pytest.mark.parametrize("error", [FORBIDDEN, Refused(404, "404 page not found"), Unavailable("starting")], ids=str)
async def test_what_is_refused_for_a_moment_at_the_start_is_known_from_readiness_on(
    path: str, error: Exception
) -> None:
    async with LateRights(fault(path, error)) as simulation:
        await simulation.ready()
        safety_switches = simulation.application.scheduler.cache.safety_switches
        assert safety_switches.protects("team"), "its switch counts from the first moment"
        for name in ("db-0", "db-1"):
            await simulation.create(database(name), POD)
        await asyncio.sleep(8)
        assert len(simulation.of_team()) == 1, "two that are to be apart never share a node"


async def test_it_is_ready_soon_after_it_has_its_rights() -> None:
    async with LateRights(fault(), 20) as simulation:
        # Within the longest pause of what follows nodes and pods, once for each kind that waits for another.
        await simulation.ready(within=20 + 4 * 5.5)


@pytest.mark.parametrize("path", ["/namespaces", "/escherpolicies", "/podgroups|scheduling.x-k8s.io"])
async def test_a_lasting_refusal_of_what_narrows_keeps_it_from_being_ready_and_readyz_says_which_kind(
    path: str,
) -> None:
    # Of PodGroups discovery tells that they are not installed, unless it is refused too.
    late = LateRights(fault(path), 400)
    entering = asyncio.ensure_future(late.__aenter__())
    await asyncio.sleep(300)
    assert not entering.done() or not late.application.ready()
    assert late.service is not None
    with pytest.raises(NoAnswer):
        await late.service.call("filter", b"{}")
    said = await readyz(late)
    assert said.status_code == 503
    kind = path.partition("|")[0].strip("/")
    assert f"{kind}: User escher cannot list" in said.json()["detail"]
    assert kind in said.json()["waits_for"]
    await entering
    await late.ready(within=140)
    assert (await readyz(late)).json()["without"] == []
    await late.__aexit__(None, None, None)


async def readyz(simulation: Simulation) -> httpx.Response:
    assert simulation.service is not None
    transport = httpx.ASGITransport(simulation.service.http)
    async with httpx.AsyncClient(transport=transport, base_url="http://escher.test") as client:
        return await client.get("/readyz")


@pytest.mark.parametrize("kind", ["namespaces", "escherpolicies", "podgroups"])
async def test_where_the_settings_do_without_a_kind_it_is_ready_and_readyz_says_so(kind: str) -> None:
    settings = Settings.model_validate({"without": [kind]})
    async with LateRights(fault(rf"/{kind}\?|x-k8s.io"), 400, settings=settings) as simulation:
        await simulation.ready(within=5)
        assert (await readyz(simulation)).json()["without"] == [kind]


async def test_jobs_only_help_and_are_gone_without_when_a_start_is_over() -> None:
    began = asyncio.get_running_loop().time()
    async with LateRights(fault("/jobs"), 400) as simulation:
        await simulation.ready()
        assert START_SECONDS <= asyncio.get_running_loop().time() - began < START_SECONDS + 10
        assert (await readyz(simulation)).json()["without"] == ["jobs"]
        await asyncio.sleep(400)
        assert (await readyz(simulation)).json()["without"] == []


# -- rights that are taken away --------------------------------------------------------------------------------------


class Rights:
    """Those to read kinds in whose path that is found; a service whose right was taken hears nothing more of them."""

    def __init__(self, simulation: Simulation, path: str) -> None:
        self._simulation = simulation
        self._fault = fault(path)

    def take(self) -> None:
        self._simulation.cluster.api.faults.add(self._fault)
        assert self._simulation.service is not None
        self._simulation.service.line.break_watches()

    def give_back(self) -> None:
        self._simulation.cluster.api.faults.remove(self._fault)


async def low_pods_and_a_high_gang(simulation: Simulation) -> None:
    made = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000}
    await simulation.create(made, PRIORITY_CLASS)
    for number in range(2):
        await simulation.create(pod(f"low-{number}", cpu=8), POD)
    await until(lambda: bound(simulation, "low") == 2)


def bound(simulation: Simulation, prefix: str) -> int:
    pods = simulation.cluster.api.store.list(POD, "default")
    return sum(bool(each["spec"].get("nodeName")) for each in pods if each["metadata"]["name"].startswith(prefix))


@pytest.mark.parametrize("path", ["/namespaces", "/escherpolicies", "/pods"])
async def test_while_rights_are_withdrawn_nothing_is_evicted_and_it_heals_without_a_restart(path: str) -> None:
    async with Simulation(nodes=2) as simulation:
        await low_pods_and_a_high_gang(simulation)
        rights = Rights(simulation, f"{path}\\?")
        rights.take()
        # A watch that is open goes on until it says something.
        await asyncio.sleep(70 + DESTROYS_WITHIN + 10)
        safety_switches = simulation.application.scheduler.cache.safety_switches
        assert safety_switches.uncertain
        for number in range(2):
            await simulation.create(pod(f"high-{number}", gang="high", quorum=2, cpu=8, priority_class="high"), POD)
        await asyncio.sleep(120)
        assert bound(simulation, "low") == 2
        assert bound(simulation, "high") == 0
        assert "User escher cannot list" in (await readyz(simulation)).json()["lost"][path.strip("/")]["why"]
        rights.give_back()
        await until(lambda: not safety_switches.uncertain, within=15, what="it is certain again")
        assert (await readyz(simulation)).json()["lost"] == {}
        await until(lambda: bound(simulation, "high") == 2, within=120, what="the gang has its room")
        assert simulation.lives == 1


async def test_a_victim_that_could_not_be_evicted_for_want_of_rights_is_asked_to_leave_as_soon_as_they_are_back() -> (
    None
):
    """What the API server refused then was the service's want of rights, and says nothing of the pod."""
    async with Simulation(nodes=2) as simulation:
        await low_pods_and_a_high_gang(simulation)
        rights = Rights(simulation, "")
        rights.take()
        for number in range(2):
            await simulation.create(pod(f"high-{number}", gang="high", quorum=2, cpu=8, priority_class="high"), POD)
        safety_switches = simulation.application.scheduler.cache.safety_switches
        await until(lambda: safety_switches.uncertain, within=120, what="it is uncertain")
        rights.give_back()
        await until(lambda: bound(simulation, "high") == 2, within=60, what="the gang has its room")


async def test_a_switch_that_is_set_while_namespaces_may_not_be_read_protects_from_then_on_but_for_the_bound() -> None:
    async with Simulation(nodes=2) as simulation:
        await low_pods_and_a_high_gang(simulation)
        await simulation.ask("GET", "/api/v1/namespaces/default")
        rights = Rights(simulation, "/namespaces\\?")
        rights.take()
        await simulation.ask(
            "PATCH",
            "/api/v1/namespaces/default",
            {"metadata": {"labels": {"escher.dev/preempt": "off"}}},
            content_type=MERGE_PATCH,
        )
        await asyncio.sleep(DESTROYS_WITHIN + 10)
        for number in range(2):
            await simulation.create(pod(f"high-{number}", gang="high", quorum=2, cpu=8, priority_class="high"), POD)
        await asyncio.sleep(60)
        rights.give_back()
        await asyncio.sleep(120)
        assert (bound(simulation, "low"), bound(simulation, "high")) == (2, 0)
        assert simulation.application.scheduler.cache.safety_switches.protects("default")


async def test_pods_that_may_not_be_changed_are_let_through_their_gate_and_woken_when_rights_come_back() -> None:
    """Room comes while the service may not patch pods: once, and it is not asked for again."""
    async with Simulation(nodes=1) as simulation:
        await simulation.create(pod("first", cpu=8), POD)
        await until(lambda: bound_of(simulation) == {"first"}, within=10)
        for number in range(2):
            await simulation.create(pod(f"gated-{number}", gang="gated", quorum=2, gated=True), POD)
        asks: dict[str, Any] = {"escher.dev/default.late": 1}
        await simulation.create(pod("waits", "escher-ledger", **asks), POD)
        await asyncio.sleep(5)
        refused = Fault(error=FORBIDDEN, user=SERVICE, method="PATCH", path=r"/pods/", times=None)
        simulation.cluster.api.faults.add(refused)
        await simulation.ask("DELETE", "/api/v1/namespaces/default/pods/first")
        late = {"apiVersion": "escher.dev/v1alpha1", "kind": "EphemeralResource", "metadata": {"name": "late"}}
        path = "/apis/escher.dev/v1alpha1/namespaces/default/ephemeralresources"
        await simulation.ask("POST", path, late | {"spec": {"nodes": {"node-0": 1}}})
        await asyncio.sleep(40)
        simulation.cluster.api.faults.remove(refused)
        await until(lambda: bound_of(simulation) == {"gated-0", "gated-1", "waits"}, within=65)


def bound_of(simulation: Simulation) -> set[str]:
    return {
        each["metadata"]["name"]
        for each in simulation.cluster.api.store.list(POD, "default")
        if each["spec"].get("nodeName")
    }
