"""A gang is its controller and not the controller's name, on a whole cluster in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from extender.app.contracts.decisions import DecisionEvent
from extender.app.contracts.errors import Invalid
from extender.core.names import GangKey
from extender.kube.client.requests import MERGE_PATCH
from kubesim.kinds import CONFIG_MAP, CUSTOM_RESOURCE_DEFINITION, EVENT, JOB, NAMESPACE, POD, Json
from lab.simulation import Simulation
from loadtests.shared.pods import pod
from tests.app.reopening import dumped, elsewhere

pytestmark = pytest.mark.anyio

OTHER_GROUP = "batch.example.org"
OTHER_JOBS = f"/apis/{OTHER_GROUP}/v1/namespaces/default/jobs"
OTHER_JOB_KIND: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"jobs.{OTHER_GROUP}"},
    "spec": {
        "group": OTHER_GROUP,
        "names": {"kind": "Job", "plural": "jobs", "singular": "job", "listKind": "JobList"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


class Stage:
    def __init__(self, sim: Simulation) -> None:
        self.sim = sim

    async def job(self, name: str, pods: int, quorum: int) -> Json:
        template = pod("of-a-job", quorum=quorum)
        spec = {"parallelism": pods, "completions": pods, "template": template}
        made = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
        return await self.sim.create(made, JOB)

    async def other_job(self, name: str) -> Json:
        await self.sim.create(OTHER_JOB_KIND, CUSTOM_RESOURCE_DEFINITION)
        await asyncio.sleep(2)
        made = {"apiVersion": f"{OTHER_GROUP}/v1", "kind": "Job", "metadata": {"name": name}}
        return await self.sim.ask("POST", OTHER_JOBS, made)

    async def stand_in(self, name: str) -> str:
        """The UID of an object that can own pods: the garbage collector looks for nothing else."""
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
        uid: str = (await self.sim.create(made, CONFIG_MAP))["metadata"]["uid"]
        return uid

    async def pods_of(self, owner: Json, *names: str, namespace: str = "default", **more: Any) -> None:
        """Pods with that ownerReference, two of which are a quorum."""
        for name in names:
            made = pod(name, **{"quorum": 2, **more})
            made["metadata"] |= {"namespace": namespace, "ownerReferences": [{**owner, "controller": True}]}
            await self.sim.create(made, POD)

    def bound(self, prefix: str = "", namespace: str = "default") -> set[str]:
        found = (each for each in self.sim.cluster.api.store.list(POD, namespace) if each["spec"].get("nodeName"))
        return {each["metadata"]["name"] for each in found if each["metadata"]["name"].startswith(prefix)}

    @property
    def gangs(self) -> list[str]:
        return [each.key.name for each in self.sim.application.management.gangs.gangs("default")]

    async def explained(self, name: str) -> str:
        return (await self.sim.application.management.explain.gang(GangKey("default", name))).subject

    def notes(self, about: str) -> set[str]:
        return {
            each["message"].split(":")[0]
            for each in self.sim.cluster.api.store.list(EVENT)
            if each["reason"] == "GangWaiting" and each["involvedObject"]["name"].startswith(about)
        }


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with Simulation(nodes=2) as sim:
        yield Stage(sim)
        assert sim.application.scheduler.cache.violations() == []


def job_owner(uid: str, *, group: str = "batch", kind: str = "Job", name: str = "train") -> Json:
    return {"apiVersion": f"{group}/v1", "kind": kind, "name": name, "uid": uid}


async def test_two_controllers_of_one_kind_and_name_and_of_two_groups_are_two_gangs(stage: Stage) -> None:
    await stage.job("train", pods=1, quorum=2)
    await asyncio.sleep(5)
    assert stage.gangs == ["job.train"]

    other = await stage.other_job("train")
    await stage.pods_of(job_owner(other["metadata"]["uid"], group=OTHER_GROUP), "other-0")
    await asyncio.sleep(30)
    assert stage.bound() == set()
    both = ["job.train@batch", f"job.train@{OTHER_GROUP}"]
    assert stage.gangs == both
    assert [await stage.explained(name) for name in both] == [f"gang default/{name}" for name in both]
    assert stage.notes("other-0") <= {f"gang job.train@{OTHER_GROUP}"}
    with pytest.raises(Invalid, match=f"several gangs .* are called job.train: ask for one of {both[0]}, {both[1]}"):
        await stage.explained("job.train")

    await stage.pods_of(job_owner(other["metadata"]["uid"], group=OTHER_GROUP), "other-1")
    await asyncio.sleep(30)
    assert stage.bound() == {"other-0", "other-1"}

    await stage.sim.ask("DELETE", f"{OTHER_JOBS}/train")
    await asyncio.sleep(30)
    assert stage.gangs == ["job.train"]
    assert await stage.explained("job.train@batch") == await stage.explained("job.train") == "gang default/job.train"


async def test_a_dump_and_the_stream_of_decisions_tell_gangs_of_one_name_apart(stage: Stage) -> None:
    uids = [await stage.stand_in(name) for name in ("one", "other")]
    for uid, group in zip(uids, ("batch", OTHER_GROUP), strict=True):
        await stage.pods_of(job_owner(uid, group=group), f"{group}-0", f"{group}-1")
    await asyncio.sleep(30)
    names = ["job.train@batch", f"job.train@{OTHER_GROUP}"]
    assert stage.gangs == names
    there = elsewhere(dumped(stage.sim.application.scheduler)).scheduler
    assert [there.cache.gangs.naming.of(key) for key in sorted(there.cache.gangs.by_key)] == names
    told: set[str] = set()
    stream = stage.sim.application.announcements.follow(0)
    async with asyncio.timeout(60):
        while len(told) < 2:
            told |= {said.gang} if isinstance(said := await anext(stream), DecisionEvent) and said.gang else set()
    assert told == set(names)


async def test_a_label_that_says_what_a_controllers_gang_is_called_joins_no_gang(stage: Stage) -> None:
    await stage.job("train", pods=1, quorum=2)
    await stage.sim.create(pod("labelled", gang="job.train", quorum=2), POD)
    await asyncio.sleep(30)
    assert stage.bound() == set()
    assert stage.gangs == ["job.train"]


async def test_pods_of_a_former_controller_count_for_nothing_in_the_gang_of_its_successor(stage: Stage) -> None:
    """The garbage collector is slow, and the Job was made again at once: the old pods live, and are bound."""
    before, after = await stage.stand_in("before"), await stage.stand_in("after")
    await stage.pods_of(job_owner(before), "old-0", "old-1")
    await asyncio.sleep(10)
    assert stage.bound() == {"old-0", "old-1"}

    await stage.pods_of(job_owner(after), "new-0")
    await asyncio.sleep(60)
    assert stage.bound("new") == set()
    assert stage.gangs == ["job.train", f"job.train@batch@{before[:8]}"]

    await stage.sim.restart()
    await asyncio.sleep(60)
    assert stage.bound("new") == set()
    assert stage.gangs == ["job.train", f"job.train@batch@{before[:8]}"]

    await stage.pods_of(job_owner(after), "new-1")
    await asyncio.sleep(30)
    assert stage.bound() == {"old-0", "old-1", "new-0", "new-1"}


async def test_pods_that_are_handed_from_one_controller_to_its_successor_run_on(stage: Stage) -> None:
    """A StatefulSet is deleted without its pods, and made again: it adopts them, one after the other."""
    before, after = await stage.stand_in("before"), await stage.stand_in("after")
    names = ["web-0", "web-1"]
    owner = job_owner(before, group="apps", kind="StatefulSet", name="web")
    await stage.pods_of(owner, *names)
    await asyncio.sleep(10)
    for refs in ([], [{**owner, "uid": after, "controller": True}]):
        for name in names:
            patch = {"metadata": {"ownerReferences": refs}}
            await stage.sim.ask("PATCH", f"/api/v1/namespaces/default/pods/{name}", patch, content_type=MERGE_PATCH)
            await asyncio.sleep(60)
    await stage.sim.restart()
    await asyncio.sleep(600)
    assert stage.bound() == set(names)
    assert stage.gangs == ["statefulset.web"]
    gang = stage.sim.application.management.gangs.gang(GangKey("default", "statefulset.web"))
    assert (gang.phase.value, len(gang.members)) == ("bound", 2)


async def test_a_controllers_uid_from_another_namespace_groups_the_forgers_own_pods_alone(stage: Stage) -> None:
    await stage.sim.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "forger"}}, NAMESPACE)
    job = await stage.job("train", pods=1, quorum=2)
    await stage.pods_of(job_owner(job["metadata"]["uid"]), "forged-0", namespace="forger")
    await asyncio.sleep(30)
    assert stage.bound() == stage.bound(namespace="forger") == set()


async def test_references_to_one_uid_under_several_names_are_as_many_gangs(stage: Stage) -> None:
    uid = await stage.stand_in("any")
    await stage.pods_of(job_owner(uid, name="a"), "a-0")
    await stage.pods_of(job_owner(uid, name="b"), "b-0")
    await stage.pods_of(job_owner(uid, name="a", kind="Task"), "task-0")
    await asyncio.sleep(30)
    assert stage.bound() == set()
    assert stage.gangs == ["job.a", "job.b", "task.a"]


async def test_a_controller_whose_name_no_object_can_have_is_told_of_and_stops_nobody_else(stage: Stage) -> None:
    uid = await stage.stand_in("any")
    await stage.pods_of(job_owner(uid, name="n" * 200_000), "longest-0", "longest-1")
    await stage.pods_of(job_owner(uid, name="n" * 10_000), "long-0", "long-1")
    await stage.pods_of(job_owner(uid, name="tr@in/x\n%"), "odd-0", "odd-1")
    await asyncio.sleep(30)
    assert stage.bound() == {"odd-0", "odd-1"}
    assert stage.gangs == ["job.tr%40in%2Fx%0A%25"]
    said = [
        (each["reason"], each["message"], each["involvedObject"]["name"])
        for each in stage.sim.cluster.api.store.list(EVENT)
    ]
    assert {name for reason, message, name in said if "no object can have" in message} == {"long-0", "long-1"}
    assert {name for reason, message, name in said if reason == "TooMuch"} == {"longest-0", "longest-1"}
