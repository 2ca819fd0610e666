"""Policies for applications on a whole cluster, in virtual time, in every space: of one application on a port of its
own or over the API server, and of several that share one."""

from __future__ import annotations

import asyncio

import pytest

from escher_k8s.esl import PolicySpace
from extender.esl.base import Notice, SetCapacity
from extender.esl.compositions.composed import AllOf
from extender.esl.policies.anti_affinity import AntiAffinity
from extender.esl.runtime.policy_esl import Task
from extender.kube.errors import Refused
from kubesim.kinds import NAMESPACE
from tests.escher_k8s.polling_port import PollingPort
from tests.esl.policy_stage import SPACES, Furnished, Near, PolicyStage, of, on_stage, staged
from tests.esl.stage import killed, play

every_space = pytest.mark.parametrize("space", SPACES)


@every_space
class TestScenarios:
    def test_of_four_on_three_nodes_three_run_apart_one_waits_and_another_group_is_placed(self, space: str) -> None:
        """Scenario 8."""

        async def story(stage: PolicyStage) -> None:
            apart = of(space, AntiAffinity, "apart")
            async with stage.space(space, [apart]) as policies:
                one, other = stage.askers(space, policies)
                for n in range(4):
                    await stage.ask(one if n % 2 else other, apart, f"t{n}", "web")
                names = [f"t{n}" for n in range(4)]
                await stage.until(lambda: len(set(stage.where(*names)) - {None}) == 3, 20, "three apart")
                await asyncio.sleep(30)
                assert sorted(map(str, stage.where(*names))) == ["None", "node-0", "node-1", "node-2"]
                await stage.ask(other, apart, "db-0", "db")
                await stage.until(lambda: stage.where("db-0") != [None], 20, "the other group")
                assert max(stage.together(apart.group_label).values()) == 1

        on_stage(story)

    def test_who_waits_is_placed_when_a_node_comes(self, space: str) -> None:
        async def story(stage: PolicyStage) -> None:
            apart = of(space, AntiAffinity, "apart")
            async with stage.space(space, [apart]) as policies:
                one, other = stage.askers(space, policies)
                await stage.ask(one, apart, "a", "web")
                await stage.ask(other, apart, "b", "web")
                await stage.until(lambda: sorted(map(str, stage.where("a", "b"))) == ["None", "node-0"], 20)
                await stage.add("node-1")
                await stage.until(lambda: set(stage.where("a", "b")) == {"node-0", "node-1"}, 30, "both")

        on_stage(story, nodes=1)

    def test_what_a_lost_node_had_is_made_again_on_a_peer_and_who_waits_is_placed(self, space: str) -> None:
        """Scenario 15."""

        async def story(stage: PolicyStage) -> None:
            near = of(space, Near)
            async with stage.space(space, [near]) as policies:
                _, other = stage.askers(space, policies)
                await stage.until(lambda: stage.units() == {"near--data-1": {"node-0": "100"}}, 5)
                await stage.lose("node-0")
                await stage.until(lambda: stage.units() == {"near--data-1": {"node-1": "100"}}, 10, "the data's place")
                await stage.ask(other, near, "reader")
                await stage.until(lambda: stage.where("reader") == ["node-1"], 20, "the reader")
                await stage.lose("node-1")
                await stage.ask(other, near, "late")
                await asyncio.sleep(20)
                assert stage.where("late") == [None]
                await stage.add("node-9")
                await stage.until(lambda: stage.where("late") == ["node-9"], 30, "the reader that has waited")

        on_stage(story, nodes=2)

    def test_a_kubelet_that_resets_its_resources_gets_them_back_each_time(self, space: str) -> None:
        """Scenario 15."""

        async def story(stage: PolicyStage) -> None:
            apart = of(space, AntiAffinity, "apart")
            async with stage.space(space, [apart]) as policies:
                one, other = stage.askers(space, policies)
                await stage.ask(one, apart, "a", "web")
                await stage.until(lambda: stage.where("a") != [None], 20)
                whole = {"apart--web": dict.fromkeys(("node-0", "node-1", "node-2"), "1")}
                for _ in range(3):
                    assert str(apart.key("web")) not in await stage.reset("node-1")
                    await stage.until(lambda: stage.units() == whole, 10, "what the kubelet has forgotten")
                await stage.ask(other, apart, "b", "web")
                await stage.until(lambda: stage.where("b") != [None], 20)
                assert max(stage.together(apart.group_label).values()) == 1

        on_stage(story)

    def test_two_tenants_with_policies_of_one_name_do_not_meet_and_neither_sets_what_is_the_nodes_own(
        self, space: str
    ) -> None:
        """Scenario 17."""

        async def story(stage: PolicyStage) -> None:
            await stage.simulation.create({"metadata": {"name": "team-b"}}, NAMESPACE)
            ours, theirs = (of(space, AntiAffinity, "cpu", namespace=name) for name in ("default", "team-b"))
            with pytest.raises(ValueError, match="is of namespace 'default', not 'team-b'"):
                stage.space(space, [ours], namespace="team-b")
            async with stage.space(space, [ours]) as policies:
                async with stage.space(space, [theirs], namespace="team-b") as others:
                    one, _ = stage.askers(space, policies)
                    another, _ = stage.askers(space, others)
                    await another.ask(theirs, Task("a", "web"))
                    for name in ("a", "b", "c"):
                        await stage.ask(one, ours, name, "web")
                    await stage.until(lambda: set(stage.where("a", "b", "c")) == {"node-0", "node-1", "node-2"}, 20)
                    whole = {str(each.key("web")): "1" for each in (ours, theirs)}
                    await stage.until(lambda: all(whole.items() <= each.items() for each in stage.allocatable()), 10)
                await stage.until(lambda: all(str(theirs.key("web")) not in each for each in stage.allocatable()), 10)
                assert all(each[str(ours.key("web"))] == "1" and each["cpu"] == "8" for each in stage.allocatable())

        on_stage(story)

    def test_several_policies_work_beside_each_other_and_a_pod_meets_both(self, space: str) -> None:
        async def story(stage: PolicyStage) -> None:
            apart, near = of(space, AntiAffinity, "apart"), of(space, Near, holder="node-2")
            async with stage.space(space, [apart, near]) as policies:
                one, other = stage.askers(space, policies)
                for name in ("a", "b"):
                    both = await one.ask(apart, Task(name, "web")) & await other.ask(near, Task(name))
                    await stage.create(stage.simulation.requests, name, both)
                await stage.until(lambda: "node-2" in stage.where("a", "b"), 20)
                await asyncio.sleep(20)
                assert sorted(map(str, stage.where("a", "b"))) == ["None", "node-2"]

        on_stage(story)

    @pytest.mark.parametrize("keep", [False, True], ids=["", "kept"])
    def test_at_the_end_nodes_have_nothing_of_it_unless_it_is_to_be_kept(self, space: str, keep: bool) -> None:
        async def story(stage: PolicyStage) -> None:
            apart = of(space, AntiAffinity, "apart")
            async with stage.space(space, [apart], keep=keep) as policies:
                one, _ = stage.askers(space, policies)
                await stage.ask(one, apart, "a", "web")
                await stage.until(lambda: stage.where("a") != [None], 20)
                await stage.until(lambda: len(stage.units().get("apart--web", {})) == 3, 5)
            assert bool(stage.units()) is keep
            assert stage.where("a") != [None]

        on_stage(story)


@every_space
class TestTheNext:
    def test_adopts_what_is_there_without_touching_it(self, space: str) -> None:
        async def story(stage: PolicyStage) -> None:
            first = of(space, AntiAffinity, "apart")
            async with stage.space(space, [first], keep=True) as policies:
                await stage.ask(policies, first, "a", "web")
                await stage.until(lambda: stage.where("a") != [None], 20)
                await stage.until(lambda: len(stage.units()["apart--web"]) == 3, 5)
            second = of(space, Furnished)
            async with stage.space(space, [second]) as policies:
                await asyncio.sleep(30)
                assert second.wanted == []
                assert list(second.tasks) == ["a"]
                await stage.ask(policies, second, "b", "web")
                await stage.until(lambda: stage.where("b") != [None], 20)
                assert max(stage.together(second.group_label).values()) == 1
            assert stage.units() == {}

        on_stage(story)

    def test_removes_what_nobody_uses(self, space: str) -> None:
        async def story(stage: PolicyStage) -> None:
            first, other = of(space, AntiAffinity, "apart"), of(space, AntiAffinity, "other")
            async with stage.space(space, [first, other], keep=True) as policies:
                await policies.ask(first, Task("a", "web"))
                await policies.ask(other, Task("a", "web"))
                await stage.until(lambda: sum(map(len, stage.units().values())) == 6, 5)
            async with stage.space(space, [of(space, AntiAffinity, "apart")]):
                await stage.until(lambda: list(stage.units()) == ["other--web"], 5, "the end of what nobody uses")

        on_stage(story)


class TestLibSpace:
    def test_who_leaves_gives_back_what_it_has_not_launched_and_nothing_of_the_others(self) -> None:
        async def story(stage: PolicyStage) -> None:
            apart = AntiAffinity("apart")
            async with stage.space("LibSpace", [apart]) as policies:
                stays = policies.application()
                await stays.ask(apart, Task("stays", "web"))
                async with policies.application() as goes:
                    await goes.ask(apart, Task("never", "db"))
                    await stage.ask(goes, apart, "launched", "db")
                    await stage.until(lambda: stage.where("launched") != [None], 20)
                    assert set(apart.tasks) == {"stays", "never", "launched"}
                assert set(apart.tasks) == {"stays", "launched"}
                await goes.release(apart, "launched")
                await stage.until(lambda: list(stage.units()) == ["apart--web"], 5)

        on_stage(story)

    def test_a_task_is_one_applications_until_it_is_over(self) -> None:
        async def story(stage: PolicyStage) -> None:
            apart = AntiAffinity("apart")
            async with stage.space("LibSpace", [apart]) as policies:
                one, other = policies.application(), policies.application()
                first = await one.ask(apart, Task("t", "web"))
                assert await one.ask(apart, Task("t", "web")) == first
                with pytest.raises(ValueError, match="'t' of policy 'apart' was asked for by another"):
                    await other.ask(apart, Task("t", "db"))
                await one.release(apart, "t")
                await other.ask(apart, Task("t", "db"))
                with pytest.raises(ValueError, match="'near' does not belong to this space"):
                    await other.ask(Near(), Task("t"))

        on_stage(story)

    def test_notices_come_to_whoever_asked(self) -> None:
        async def story(stage: PolicyStage) -> None:
            told: dict[str, list[Notice]] = {"space": [], "one": [], "other": []}
            apart, near = AntiAffinity("apart"), AntiAffinity("near")
            policies = stage.space("LibSpace", [apart, near], on_notice=told["space"].append)
            async with policies:
                one = policies.application(told["one"].append)
                other = policies.application(told["other"].append)
                await one.ask(apart, Task("t", "web"))
                await other.ask(near, Task("t", "web"))
                about = [Notice("apart", "t", "x"), Notice("near", "", "y"), Notice("near", "else", "z")]
                await policies.do(lambda now: about)
                assert told == {"space": about, "one": about[:1], "other": about[1:2]}

        on_stage(story)

    def test_policies_of_one_name_or_of_another_namespace_do_not_share_a_space(self) -> None:
        async def story(stage: PolicyStage) -> None:
            with pytest.raises(ValueError, match="two policies have the name 'apart'"):
                stage.space("LibSpace", [AntiAffinity("apart"), AntiAffinity("apart")])
            with pytest.raises(ValueError, match="is of namespace 'team-a', not 'default'"):
                stage.space("AppSpace on a port", [AntiAffinity("apart", namespace="team-a")])

        on_stage(story)


class TestTrouble:
    def test_what_a_node_refuses_is_noticed_once_and_no_concern_of_the_others(self) -> None:
        async def story(stage: PolicyStage) -> None:
            told: list[Notice] = []
            apart, near = AntiAffinity("apart"), Near()
            door = stage.door()
            policies = stage.over(door, [apart, near], on_notice=told.append)
            door.refuse = lambda method, path, body: (
                Refused(403, "forbidden") if method == "PATCH" and "node-0" in path else None
            )
            async with policies:
                await asyncio.sleep(30)
                await policies.ask(apart, Task("a", "web"))
                await asyncio.sleep(30)
                assert [(each.policy, each.text) for each in told] == [
                    ("near", "node node-0 cannot have app.escher.dev/default.near--data-1=100: forbidden"),
                    ("apart", "node node-0 cannot have app.escher.dev/default.apart--web=1: forbidden"),
                ]
                assert stage.units() == {"apart--web": {"node-1": "1", "node-2": "1"}}
                door.refuse = lambda method, path, body: None

        on_stage(story)

    def test_who_may_not_look_hears_it_when_entering(self) -> None:
        async def story(stage: PolicyStage) -> None:
            port, refused = PollingPort(stage.simulation, "default"), stage.door()
            port.dies = RuntimeError("the port is dead")
            with pytest.raises(RuntimeError, match="the port is dead"):
                await PolicySpace(port, [Near()]).__aenter__()
            refused.refuse = lambda method, path, body: KeyError("a defect")
            with pytest.raises(KeyError, match="a defect"):
                await stage.over(refused, [Near()]).__aenter__()

        on_stage(story)


class TestKilled:
    @pytest.mark.parametrize("lost", [False, True], ids=["before", "after"])
    def test_at_each_of_its_requests_the_next_makes_it_good_and_no_node_ever_has_two(self, lost: bool) -> None:
        at = 0
        while play(self.life(at := at + 1, lost)):
            pass
        assert at > 12

    async def life(self, at: int, lost: bool) -> bool:
        async with staged() as stage:
            door = stage.door()
            door.killed_at, door.answer_lost = at, lost
            apart = AntiAffinity("apart")
            policies = stage.over(door, [apart])
            watching = asyncio.create_task(self.watch_over(stage, apart.group_label))

            async def work() -> None:
                for n in range(4):
                    requirement = await policies.ask(apart, Task(f"t{n}", "web"))
                    await stage.create(door, f"t{n}", requirement, "20")
                await stage.until(lambda: len(set(stage.where(*names)) - {None}) == 3, 20)

            names = [f"t{n}" for n in range(4)]
            was_killed = await killed(policies, work(), door)
            again = AntiAffinity("apart")
            async with stage.over(stage.door(), [again]) as policies:
                for name in names:
                    requirement = await policies.ask(again, Task(name, "web"))
                    if not any(each["metadata"]["name"] == name for each in stage.all_pods()):
                        await stage.create(stage.simulation.requests, name, requirement, "20")
                await stage.until(lambda: None not in stage.where(*names), 90, "the end of the queue")
                await stage.until(lambda: not again.tasks, 60, "the end of all")
                await stage.until(lambda: stage.units() == {}, 5, "the end of their resources")
            watching.cancel()
            assert (await asyncio.gather(watching, return_exceptions=True))[0].__class__ is asyncio.CancelledError
        return was_killed

    async def watch_over(self, stage: PolicyStage, label: str) -> None:
        while True:
            there = stage.together(label)
            assert not there or max(there.values()) == 1, there
            await asyncio.sleep(0.01)


def test_setting_what_is_set_already_is_not_a_change_of_anybodys() -> None:
    """A policy that is told of its own writes sets nothing again."""

    async def story(stage: PolicyStage) -> None:
        furnished = Furnished()
        async with stage.space("AppSpace", [furnished]) as policies:
            await stage.ask(policies, furnished, "a", "web")
            await asyncio.sleep(60)
            assert [each for each in furnished.wanted if isinstance(each, SetCapacity)] == []
            assert len(stage.units()["apart--web"]) == 3

    on_stage(story)


def test_a_composition_is_told_all_and_nothing_of_its_parts_is_left() -> None:
    async def story(stage: PolicyStage) -> None:
        apart, near = AntiAffinity("apart"), Near(holder="node-2")
        both = AllOf("both", apart, near)
        async with stage.space("AppSpace", [both]) as policies:
            for name in ("a", "b"):
                await stage.ask(policies, both, name, "web")
            await stage.until(lambda: "node-2" in stage.where("a", "b"), 20)
            await stage.reset("node-2")
            await stage.until(lambda: "node-2" in stage.units().get("near--data-1", {}), 10, "what was forgotten")
            await asyncio.sleep(20)
            assert sorted(map(str, stage.where("a", "b"))) == ["None", "node-2"]
        assert stage.units() == {}

    on_stage(story)
