"""Another kind of ours costs a schema and a reconcile function: here is one, on the embedded cluster, through the
reflector and the store."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec import Struct

from extender.adapters.kubernetes.codecs.kinds import ours
from extender.adapters.kubernetes.codecs.schema import Declaration
from extender.adapters.kubernetes.codecs.store import ApiObjectStore
from extender.adapters.kubernetes.reflectors.reflector import Reflector
from extender.app.contracts.errors import BeingDeleted, Invalid, VersionConflict
from extender.app.contracts.kind import Declared, Identity, NotInForce, declared
from extender.app.objects.object_controller import ObjectController
from extender.app.objects.write_ids import WriteIds
from extender.kube.client.requests import JSON, TIMEOUT
from extender.kube.errors import Away, Refused, Unavailable
from kubesim.apiserver.serving.in_process import InProcess
from kubesim.kinds import CUSTOM_RESOURCE_DEFINITION, Json
from lab.simulated_service import Line
from tests.app.fakes import LoopClock
from tests.kubesim.apiserver.apis import Api

pytestmark = pytest.mark.anyio

# -- the kind: a schema and a reconcile function -------------------------------------------------------------------


class ToySpec(Struct, frozen=True):
    colour: str
    share: int
    labels: dict[str, str] | None = None
    until: float | None = None


@dataclass(frozen=True)
class Toy:
    colour: str
    share: float


def reconcile(item: Declared[ToySpec], former: Toy | None) -> Toy | NotInForce:
    assert item.spec is not None
    if not 1 <= item.spec.share <= 100:
        return NotInForce("OutOfRange", f"spec.share is {item.spec.share}; write 1 to 100")
    if former is not None and former.colour != item.spec.colour:
        return NotInForce("Immutable", f"spec.colour cannot be changed from {former.colour} to {item.spec.colour}")
    return Toy(item.spec.colour, item.spec.share / 100)


SCHEMA = Declaration("ToyPolicy", "toypolicies", ToySpec, lambda spec: spec.until)
KIND = declared("ToyPolicy", reconcile)

# -- a cluster, and the lives of a service in it -------------------------------------------------------------------

NAME = Identity("default", "a")
PATH = "/apis/escher.dev/v1alpha1/namespaces/default/toypolicies"
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "toypolicies.escher.dev"},
    "spec": {
        "group": "escher.dev",
        "scope": "Namespaced",
        "names": {"kind": "ToyPolicy", "listKind": "ToyPolicyList", "plural": "toypolicies", "singular": "toypolicy"},
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": ANYTHING, "status": ANYTHING}}},
            }
        ],
    },
}
LOST, LATE, TWICE, UNHEARD = "its answer is lost", "it arrives later", "it arrives twice", "it is lost"


class Network(Line):
    """What the next writes meet, in order."""

    def __init__(self, inner: InProcess) -> None:
        super().__init__(inner)
        self.fates: list[str] = []
        self._on_their_way: list[asyncio.Task[None]] = []

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        accept: str = JSON,
        within: float = TIMEOUT,
    ) -> bytes:
        async def send() -> bytes:
            return await super(Network, self).request(
                method, path, body, content_type=content_type, accept=accept, within=within
            )

        async def later() -> None:
            await asyncio.sleep(5)
            with suppress(Refused):
                await send()

        fate = "" if method == "GET" or not self.fates else self.fates.pop(0)
        if fate in (LOST, TWICE):
            await send()
        elif fate == LATE:
            self._on_their_way.append(asyncio.ensure_future(later()))
        if fate in (LOST, LATE, UNHEARD):
            raise Away("connection reset by peer")
        return await send()


class Life:
    """A service, from its start on, and all that it is made of."""

    def __init__(self, api: Api, number: int) -> None:
        rng = random.Random(number)
        self.network = Network(InProcess(api.server, latency=0.001, rng=rng))
        store = ApiObjectStore(self.network, SCHEMA, lambda: 0.0)
        marks = WriteIds(lambda: f"{rng.getrandbits(64):016x}")
        self.toys = ObjectController(KIND, store, LoopClock(), marks=marks, chance=rng.random)
        self.reflector = Reflector(
            self.network,
            ours(SCHEMA),
            self.toys.known,
            before_list=self.toys.known.before_list,
            clock=asyncio.get_running_loop().time,
            chance=rng.random,
        )
        self.running = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.reflector.run())
            group.create_task(self.toys.run([self.reflector.synced]))


@dataclass
class Town:
    api: Api
    lives: list[Life] = field(default_factory=list)

    async def start(self) -> Life:
        self.lives.append(Life(self.api, len(self.lives)))
        await asyncio.sleep(1)
        return self.lives[-1]

    async def kill(self) -> None:
        self.lives[-1].network.cut(losing=False)
        self.lives[-1].running.cancel()
        await asyncio.gather(self.lives[-1].running, return_exceptions=True)

    @property
    def toys(self) -> ObjectController[ToySpec, Toy]:
        return self.lives[-1].toys

    @property
    def network(self) -> Network:
        return self.lives[-1].network

    def share(self) -> float | None:
        toy = self.toys.in_force.get(NAME)
        return None if toy is None else toy.share

    async def says(self, share: Any, **more: Any) -> None:
        """Somebody writes the object with kubectl."""
        body = {"spec": {"colour": "red", "share": share, **more}}
        status, _ = self.api.ask("PATCH", f"{PATH}/a", body, media="application/merge-patch+json")
        if status == 404:
            head = {"apiVersion": "escher.dev/v1alpha1", "kind": "ToyPolicy", "metadata": {"name": "a"}}
            self.api.ok("POST", PATH, {**head, **body})
        await asyncio.sleep(1)

    def finalizers(self, *names: str) -> None:
        body = {"metadata": {"finalizers": list(names)}}
        self.api.ok("PATCH", f"{PATH}/a", body, media="application/merge-patch+json")

    def stored(self) -> Json:
        return self.api.get(f"{PATH}/a")

    def ready(self) -> tuple[str, str, str]:
        """Of the object as stored: the Ready condition, which is about what it says now."""
        said = self.stored()
        (condition,) = said["status"]["conditions"]
        assert said["status"]["observedGeneration"] == condition["observedGeneration"] == said["metadata"]["generation"]
        return condition["status"], condition["reason"], condition["message"]


@pytest.fixture
async def town() -> AsyncIterator[Town]:
    api = Api()
    api.ok("POST", CUSTOM_RESOURCE_DEFINITION.path(), DEFINITION)
    town = Town(api)
    await town.start()
    yield town
    assert len(town.toys.writing.locks) == 0
    await town.kill()


def spec(share: int, **more: Any) -> ToySpec:
    return ToySpec("red", share, **more)


# -- known and in force --------------------------------------------------------------------------------------------


async def test_what_is_well_is_in_force_and_says_so(town: Town) -> None:
    await town.says(40)
    assert town.toys.in_force.get(NAME) == Toy("red", 0.4)
    assert town.ready() == ("True", "InForce", "the spec is in force")
    await town.says(50)
    assert town.share() == 0.5
    assert town.ready()[:2] == ("True", "InForce")
    assert list(town.toys.in_force) == [NAME]


async def test_a_bad_edit_is_known_and_refused_and_the_last_good_one_stays_in_force(town: Town) -> None:
    await town.says(40)
    for bad in (0, 101):
        await town.says(bad)
        entry = town.toys.known.get(NAME)
        assert entry is not None
        assert entry.item.spec == spec(bad)
        assert town.share() == 0.4
        said = f"spec.share is {bad}; write 1 to 100; the former spec stays in force"
        assert town.ready() == ("False", "OutOfRange", said)
    await town.says(60)
    assert town.share() == 0.6
    assert town.ready()[0] == "True"


async def test_what_cannot_be_read_is_refused_with_its_place(town: Town) -> None:
    await town.says("many")
    assert town.share() is None
    assert town.ready() == ("False", "Invalid", "spec.share: expected `int`, got `str`")


async def test_whether_an_edit_is_good_may_depend_on_what_is_in_force(town: Town) -> None:
    await town.says(40)
    await town.says(50, colour="blue")
    assert town.share() == 0.4
    assert town.ready()[1] == "Immutable"


# -- restarts, and time that goes back -----------------------------------------------------------------------------


async def test_the_last_good_one_is_in_force_after_a_restart(town: Town) -> None:
    await town.says(40)
    await town.says(0)
    await town.kill()
    await town.start()
    assert town.share() == 0.4
    assert town.ready()[:2] == ("False", "OutOfRange")
    await town.kill()
    await town.start()
    assert town.share() == 0.4, "the status that was written in between remembers it too"


async def test_an_edit_while_no_service_ran_is_judged_by_what_was_in_force_before(town: Town) -> None:
    await town.says(40)
    await town.kill()
    await town.says(50, colour="blue")
    await town.start()
    assert town.share() == 0.4
    assert town.ready()[1] == "Immutable"
    await town.kill()
    await town.says(50)
    await town.start()
    assert town.share() == 0.5


async def test_nothing_is_written_after_a_restart_where_all_is_said(town: Town) -> None:
    await town.says(40)
    version = town.stored()["metadata"]["resourceVersion"]
    await town.kill()
    await town.start()
    await asyncio.sleep(200)
    assert town.stored()["metadata"]["resourceVersion"] == version


async def test_a_store_that_goes_back_takes_what_is_in_force_back_with_it(town: Town) -> None:
    await town.says(40)
    backup = town.api.server.store.back_up()
    for share in (50, 60, 70):
        await town.says(share)
    assert town.share() == 0.7
    town.api.server.restore(backup)
    await asyncio.sleep(200)
    assert town.share() == 0.4
    assert town.ready()[0] == "True"


# -- deletion ------------------------------------------------------------------------------------------------------


async def test_what_a_finalizer_holds_is_known_and_not_in_force(town: Town) -> None:
    await town.says(40)
    town.finalizers("x.io/keep")
    left = await town.toys.delete(NAME)
    assert left is not None
    assert left.finalizers == ("x.io/keep",)
    assert town.share() is None
    assert town.toys.known.get(NAME) is not None
    with pytest.raises(BeingDeleted):
        await town.toys.put(NAME, spec(50))
    town.finalizers()
    await asyncio.sleep(1)
    assert town.toys.known.get(NAME) is None
    await town.toys.put(NAME, spec(50))
    assert town.share() == 0.5


async def test_a_namesake_has_nothing_of_what_its_forerunner_had_in_force(town: Town) -> None:
    await town.says(40)
    town.network.hold_watches()
    town.api.ok("DELETE", f"{PATH}/a")
    await town.says(0)
    town.network.release_watches()
    await asyncio.sleep(1)
    assert town.share() is None
    assert town.ready()[2] == "spec.share is 0; write 1 to 100"


async def test_what_has_an_end_is_collected_then_and_what_is_renewed_is_not(town: Town) -> None:
    now = LoopClock().now()
    await town.toys.put(NAME, spec(40, until=now + 100))
    await asyncio.sleep(90)
    await town.toys.put(NAME, spec(40, until=now + 200))
    await asyncio.sleep(90)
    assert town.share() == 0.4
    await asyncio.sleep(30)
    assert town.share() is None
    assert town.api.names(PATH) == []


# -- our own writes ------------------------------------------------------------------------------------------------


async def test_what_we_write_is_in_force_before_the_watch_tells_and_a_late_echo_undoes_nothing(town: Town) -> None:
    town.network.hold_watches()
    for share in (40, 50, 60):
        await town.toys.put(NAME, spec(share))
        assert town.share() == share / 100
    town.network.release_watches()
    for _ in range(100):
        await asyncio.sleep(0.01)
        assert town.share() == 0.6


async def test_a_bad_one_is_refused_and_nothing_is_written(town: Town) -> None:
    await town.toys.put(NAME, spec(40))
    with pytest.raises(Invalid, match=r"spec\.share is 0; write 1 to 100"):
        await town.toys.put(NAME, spec(0))
    assert town.stored()["spec"]["share"] == 40


async def test_what_a_new_spec_leaves_out_is_gone(town: Town) -> None:
    await town.toys.put(NAME, spec(40, labels={"a": "1", "b": "2"}))
    await town.toys.put(NAME, spec(40, labels={"b": "3"}))
    assert town.stored()["spec"] == {"colour": "red", "share": 40, "labels": {"b": "3"}}
    await town.toys.put(NAME, spec(40))
    assert town.stored()["spec"] == {"colour": "red", "share": 40}


async def test_a_version_that_does_not_hold_is_refused_and_our_own_status_is_no_reason(town: Town) -> None:
    await town.toys.put(NAME, spec(40))
    entry = town.toys.known.get(NAME)
    assert entry is not None
    seen = entry.version
    await asyncio.sleep(10)
    assert town.stored()["metadata"]["resourceVersion"] != seen, "its status was written"
    await town.toys.put(NAME, spec(50), if_version=seen)
    with pytest.raises(VersionConflict):
        await town.toys.put(NAME, spec(60), if_version=seen)
    with pytest.raises(VersionConflict):
        await town.toys.delete(NAME, if_version=seen)
    assert town.share() == 0.5


@pytest.mark.parametrize("there", [False, True])
async def test_a_write_that_arrives_twice_is_done_once(town: Town, there: bool) -> None:
    if there:
        await town.toys.put(NAME, spec(10))
        await asyncio.sleep(10)
    generation = town.stored()["metadata"]["generation"] if there else 0
    town.network.fates = [TWICE]
    await town.toys.put(NAME, spec(40))
    assert town.share() == 0.4
    assert town.stored()["metadata"]["generation"] == generation + 1


async def test_a_write_of_which_the_answer_is_lost_is_in_force_when_the_watch_tells(town: Town) -> None:
    town.network.fates = [LOST]
    with pytest.raises(Unavailable):
        await town.toys.put(NAME, spec(40))
    await asyncio.sleep(1)
    assert town.share() == 0.4


async def test_a_creation_that_arrives_after_another_call_has_settled_the_matter_is_collected(town: Town) -> None:
    town.network.fates = [LATE]
    with pytest.raises(Unavailable):
        await town.toys.put(NAME, spec(40))
    assert await town.toys.delete(NAME) is None
    await asyncio.sleep(10)
    assert town.api.names(PATH) == []
    assert town.share() is None


async def test_a_change_that_arrives_after_another_is_refused(town: Town) -> None:
    await town.toys.put(NAME, spec(10))
    await asyncio.sleep(10)
    town.network.fates = [LATE]
    with pytest.raises(Unavailable):
        await town.toys.put(NAME, spec(40))
    await town.toys.put(NAME, spec(50))
    await asyncio.sleep(10)
    assert town.stored()["spec"]["share"] == 50
    assert town.share() == 0.5


@pytest.mark.parametrize("fate", [LOST, UNHEARD, TWICE, LATE])
async def test_a_status_is_written_though_requests_and_answers_get_lost(town: Town, fate: str) -> None:
    town.network.fates = [fate] * 3
    await town.says(0)
    await asyncio.sleep(20)
    assert town.ready()[:2] == ("False", "OutOfRange")


async def test_what_is_gone_while_the_watch_is_late_is_asked_about(town: Town) -> None:
    town.network.hold_watches()
    await town.toys.put(NAME, spec(40))
    town.api.ok("DELETE", f"{PATH}/a")
    await asyncio.sleep(180)
    assert town.share() is None
    assert town.toys.known.get(NAME) is None
