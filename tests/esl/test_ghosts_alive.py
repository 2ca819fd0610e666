"""Applications with gangs without an extender on a whole cluster, in virtual time: refused, preempted, killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from extender.adapters.kubernetes.appspace.extended_resource_gangs import ExtendedResourceGangs, GangFailed
from extender.esl import GangSpec, Times, gang
from extender.esl.base import News, Report
from extender.kube.errors import Refused, Unavailable
from kubesim.kinds import POD, Json
from tests.esl.stage import Door, Stage, killed, play

COLLECTED_WITHIN = 21.0
"""Seconds after a start, as the documentation says, and a little for the requests."""


@asynccontextmanager
async def staged(allowed: float = 0.0, **wishes: Any) -> AsyncIterator[Stage]:
    stage = Stage(**wishes)
    async with stage.simulation:
        watching = asyncio.create_task(stage.watch_over(allowed))
        yield stage
        if watching.done():
            await watching
        watching.cancel()


def ask(size: int = 3, **wishes: Any) -> GangSpec:
    return gang("train", size, {"cpu": "1"}, **wishes)


def quota(stage: Stage, door: Door, most: int) -> Any:
    def refuse(method: str, path: str, body: Json) -> Exception | None:
        if method == "POST" and path.endswith("/pods") and len(stage.ghosts()) + door.under_way >= most:
            return Refused(403, f'pods "{body["metadata"]["name"]}" is forbidden: exceeded quota: ghosts')
        return None

    return refuse


class TestKilled:
    @pytest.mark.parametrize(
        ("lost", "scheduler"), [(False, "escher-resources"), (True, "default-scheduler")], ids=["before", "after"]
    )
    def test_at_each_of_its_requests_nothing_is_left_and_the_next_run_comes_about(
        self, lost: bool, scheduler: str
    ) -> None:
        at = 0
        while True:
            at += 1
            try:
                if not play(self.life(at, lost, scheduler)):
                    break
            except AssertionError as error:
                raise AssertionError(f"killed at request {at}: {error}") from error
        assert at > 17

    async def life(self, at: int, lost: bool, scheduler: str) -> bool:
        async with staged() as stage:
            door = stage.door()
            door.killed_at, door.answer_lost = at, lost
            first = ExtendedResourceGangs(door, seed=1)
            if not await killed(first, first.run(ask(scheduler=scheduler), stage.launcher(door)), door):
                assert stage.nothing_left()
                return False
            loop = asyncio.get_running_loop()
            async with ExtendedResourceGangs(stage.door(), seed=2) as second:
                began = loop.time()
                report = await second.run(ask(scheduler=scheduler), stage.launch)
                assert report.news is News.ENDED
                await stage.until(
                    lambda: not stage.ghosts() and not stage.keys() and len(stage.leases()) == 1,
                    began + COLLECTED_WITHIN - loop.time(),
                    "the end of what the dead run left",
                )
            assert stage.nothing_left()
        return True

    def test_members_that_run_keep_their_ghosts_until_they_have_ended(self) -> None:
        async def story() -> None:
            async with staged() as stage:
                door = stage.door()
                first = ExtendedResourceGangs(door, seed=1)

                async def work() -> None:
                    run = first.start(ask())
                    await run.reserved()
                    await stage.launch(run.spec, seconds="100")
                    await stage.until(lambda: sum("nodeName" in pod["spec"] for pod in stage.members()) == 3, 5)
                    door.dead.set()

                assert await killed(first, work(), door)
                async with ExtendedResourceGangs(stage.door(), seed=2):
                    await asyncio.sleep(60)
                    assert len(stage.ghosts()) == 3
                    assert stage.keys() == []
                    await stage.until(lambda: not stage.ghosts(), 60, "the end of the ghosts with their members")

        play(story())

    def test_with_a_ghost_taken_meanwhile_its_member_is_evicted_when_the_next_has_started(self) -> None:
        async def story() -> None:
            async with staged(allowed=COLLECTED_WITHIN + 11) as stage:
                door = stage.door()
                first = ExtendedResourceGangs(door, seed=1)

                async def work() -> None:
                    run = first.start(ask())
                    await run.reserved()
                    await stage.launch(run.spec, seconds="1000")
                    await stage.until(lambda: sum(map(bool, map(node_of, stage.members()))) == 3, 5)
                    door.dead.set()

                assert await killed(first, work(), door)
                name = stage.ghosts()[0]["metadata"]["name"]
                await stage.simulation.ask("DELETE", f"/api/v1/namespaces/default/pods/{name}")
                async with ExtendedResourceGangs(stage.door(), seed=2):
                    await stage.until(lambda: len(stage.members()) == 2, COLLECTED_WITHIN + 11, "the eviction")
                    assert len(stage.ghosts()) == 2
                    assert not stage.without_room()

        play(story())

    def test_by_whom_nobody_comes_after_is_swept_and_told_of(self) -> None:
        async def story() -> None:
            async with staged() as stage:
                door = stage.door()
                first = ExtendedResourceGangs(door, seed=1)
                runs: list[str] = []

                async def work() -> None:
                    run = first.start(ask())
                    await run.reserved()
                    runs.append(run.spec.run)
                    door.dead.set()

                loop = asyncio.get_running_loop()
                async with ExtendedResourceGangs(stage.door(), seed=2) as sweeper:
                    assert await sweeper.collected() == []
                assert loop.time() < 1, "nobody has to be waited for"
                assert await killed(first, work(), door)
                began = loop.time()
                async with ExtendedResourceGangs(stage.door(), seed=3) as sweeper:
                    assert await sweeper.collected() == [(ask().gang, runs[0])]
                    assert not stage.ghosts()
                assert loop.time() - began < COLLECTED_WITHIN
                assert stage.nothing_left()

        play(story())

    def test_what_a_living_application_has_is_not_touched(self) -> None:
        async def story() -> None:
            async with staged(nodes=3) as stage, ExtendedResourceGangs(stage.door("one"), seed=1) as one:
                run = one.start(ask())
                await run.reserved()
                async with ExtendedResourceGangs(stage.door("other"), seed=2):
                    await asyncio.sleep(50)
                    assert len(stage.ghosts()) == 3
                    assert len(stage.keys()) == 3
                assert run.troubles == []

        play(story())

    def test_one_that_was_cut_off_for_so_long_that_others_took_it_for_dead_gives_its_gangs_up(self) -> None:
        async def story() -> None:
            async with staged(nodes=3) as stage:
                cut = stage.door("one")
                async with ExtendedResourceGangs(cut, seed=1) as one, ExtendedResourceGangs(stage.door(), seed=2):
                    run = one.start(ask())
                    await run.reserved()
                    held = asyncio.Event()

                    def away(method: str, path: str, body: Json) -> Exception | None:
                        return None if held.is_set() else Unavailable("no route to host")

                    cut.refuse = away
                    await stage.until(lambda: not stage.ghosts() and not stage.keys(), 40, "that it is taken for dead")
                    held.set()
                    report = await run.ended()
                    assert report.news is News.FAILED
                    assert "took it for dead" in report.detail
                    # And it goes on under another name.
                    again = one.start(ask())
                    await again.reserved()
                    assert again.spec.run[:6] != run.spec.run[:6]
                assert stage.nothing_left()

        play(story())


class TestRefused:
    def test_a_gang_for_which_a_quota_leaves_no_room_backs_off_and_says_why(self) -> None:
        async def story() -> None:
            async with staged() as stage:
                door = stage.door()
                door.refuse = quota(stage, door, 2)
                said: list[Report] = []
                async with ExtendedResourceGangs(door, seed=1, times=Times(attempts=4), on_news=said.append) as gangs:
                    with pytest.raises(GangFailed, match="exceeded quota"):
                        await gangs.run(ask(), stage.launch)
                    assert [report.news for report in said] == [News.ROLLED_BACK] * 3 + [News.FAILED]
                    assert all("exceeded quota" in report.detail for report in said)
                    assert door.writes["POST pods"] == 12
                assert stage.nothing_left()

        play(story())

    def test_a_ghost_that_is_refused_when_another_was_lost_is_not_asked_for_again_and_again(self) -> None:
        async def story() -> None:
            async with staged() as stage:
                door = stage.door()
                async with ExtendedResourceGangs(door, seed=1) as gangs:
                    run = gangs.start(ask())
                    await run.reserved()
                    door.refuse = quota(stage, door, 2)
                    before = door.writes["POST pods"]
                    name = stage.ghosts()[0]["metadata"]["name"]
                    await stage.simulation.ask("DELETE", f"/api/v1/namespaces/default/pods/{name}")
                    await asyncio.sleep(3)
                    assert 1 <= door.writes["POST pods"] - before <= 4
                    assert "exceeded quota" in run.troubles[-1]
                    door.refuse = quota(stage, door, 10)
                    await stage.until(lambda: len(stage.keys()) == 3, 10, "the third place")

        play(story())

    def test_a_gang_in_a_namespace_that_is_being_deleted_ends_and_says_why(self) -> None:
        async def story() -> None:
            async with staged() as stage:
                door = stage.door()
                why = "unable to create new content in namespace default because it is being terminated"
                door.refuse = lambda method, path, body: (
                    Refused(403, why) if method == "POST" and path.endswith("/pods") else None
                )
                async with ExtendedResourceGangs(door, seed=1, times=Times(attempts=3)) as gangs:
                    with pytest.raises(GangFailed, match="being terminated"):
                        await gangs.run(ask())

        play(story())

    def test_credentials_that_allow_no_leases_are_told_at_the_start(self) -> None:
        async def story() -> None:
            async with staged() as stage:
                door = stage.door()
                no = Refused(403, "leases is forbidden")
                door.refuse = lambda method, path, body: no if "leases" in path else None
                with pytest.raises(Refused, match="leases is forbidden"):
                    await ExtendedResourceGangs(door).__aenter__()

        play(story())


class TestTaken:
    def test_resources_that_vanish_from_a_node_are_written_again(self) -> None:
        async def story() -> None:
            async with staged() as stage, ExtendedResourceGangs(stage.door(), seed=1) as gangs:
                run = gangs.start(ask())
                await run.reserved()
                before = stage.keys()
                for node, key in before:
                    gone = {"capacity": {key: None}, "allocatable": {key: None}}
                    await stage.simulation.ask(
                        "PATCH", f"/api/v1/nodes/{node}/status", {"status": gone},
                        content_type="application/merge-patch+json",
                    )  # fmt: skip
                await stage.until(lambda: sorted(stage.keys()) == sorted(before), 1, "that they are there again")

        play(story())

    def test_who_is_preempted_goes_with_its_room_and_comes_again_where_there_is_some(self) -> None:
        async def story() -> None:
            async with staged(allowed=11.0, nodes=4, cpu="1") as stage:
                strong = {
                    "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "strong"},
                    "value": 1000,
                }  # fmt: skip
                await stage.simulation.ask("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", strong)
                async with ExtendedResourceGangs(stage.door(), seed=1) as gangs:
                    run = gangs.start(ask(3, one_key=True))
                    await run.reserved()
                    await stage.job(run.spec, seconds="100")
                    await stage.until(lambda: sum(map(bool, map(node_of, stage.members()))) == 3, 10)
                    there = node_of(stage.members()[0])
                    pod = {
                        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "intruder", "namespace": "default"},
                        "spec": {
                            "priorityClassName": "strong", "schedulerName": "escher-resources",
                            "nodeSelector": {"kubernetes.io/hostname": there},
                            "containers": [
                                {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}
                            ],
                        },
                    }  # fmt: skip
                    await stage.simulation.create(pod, POD)
                    report = await run.ended()
                    assert report.news is News.ENDED
                    assert "was preempted" in " ".join(run.troubles) or "deleted by another client" in " ".join(
                        run.troubles
                    )
                    assert "is evicted: its capacity was taken" in " ".join(run.troubles)
                assert stage.nothing_left()

        play(story())


def test_a_job_whose_pods_all_fail_finds_its_room_when_it_tries_again() -> None:
    async def story() -> None:
        async with staged() as stage, ExtendedResourceGangs(stage.door(), seed=1) as gangs:
            run = gangs.start(ask(one_key=True))
            await run.reserved()
            ghosts = [each["metadata"]["name"] for each in stage.ghosts()]
            await stage.job(run.spec, seconds="30")
            await stage.until(lambda: sum(map(bool, map(node_of, stage.members()))) == 3, 10)
            for pod in stage.members():
                await stage.simulation.ask(
                    "PATCH", f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}/status",
                    {"status": {"phase": "Failed"}}, content_type="application/merge-patch+json",
                )  # fmt: skip
            report = await run.ended()
            assert report.news is News.ENDED
            assert run.troubles == []
            assert [each["metadata"]["name"] for each in stage.ghosts()] == [] != ghosts

    play(story())


def test_an_ask_with_a_token_that_has_been_before_is_refused_while_anything_is_left_of_that() -> None:
    async def story() -> None:
        async with staged() as stage:
            mine = ask(run="mine")
            door = stage.door()
            first = ExtendedResourceGangs(door, seed=1)

            async def work() -> None:
                await first.start(mine).reserved()
                door.dead.set()

            assert await killed(first, work(), door)
            async with ExtendedResourceGangs(stage.door(), seed=2) as second:
                with pytest.raises(ValueError, match="run 'mine' was used before, and has left 3 ghosts"):
                    second.start(mine)
                await stage.until(lambda: not stage.ghosts(), COLLECTED_WITHIN)
                report = await second.run(mine, stage.launch)
                assert report.news is News.ENDED

    play(story())


def node_of(pod: Json) -> str:
    return str(pod["spec"].get("nodeName") or "")
