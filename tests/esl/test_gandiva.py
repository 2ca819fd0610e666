"""Gandiva's move for applications: a job runs anywhere, and is brought together where one node can hold it whole; no
work is lost that was not saved, and no task is left standing."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from extender.esl.base import Effect, RemoveCapacity, StopTask, TimePassed
from extender.esl.compositions.gandiva import Gandiva
from extender.kube.names import CPU, NodeName, PodUid
from tests.esl.policy_world import MILLI, PolicyWorld, nodes


class Saving:
    """An application that answers checkpoints, and sees to it that nothing is stopped but what it has saved."""

    def __init__(self, world: PolicyWorld) -> None:
        self.world = world
        self.saved: dict[int, set[PodUid]] = {}
        self.lost: list[StopTask] = []
        """Pods that were stopped with no checkpoint of theirs answered."""
        self.stopped: Counter[str] = Counter()
        self._answered: set[PodUid] = set()
        world.refuse = self.look

    @property
    def esl(self) -> Gandiva:
        assert isinstance(self.world.esl, Gandiva)
        return self.world.esl

    def look(self, effect: Effect) -> str:
        if isinstance(effect, StopTask):
            self.stopped[effect.name] += 1
            # Of a pod that is gone by then nothing is left to lose.
            there = any(pod.uid == effect.uid for pod in self.world.pods.values())
            if there and effect.uid not in self._answered:
                self.lost.append(effect)
        return ""

    def save(self) -> None:
        """What runs of the jobs whose checkpoint is wanted."""
        for job, number in self.esl.checkpoints.items():
            label, group = self.esl.label, self.esl.group_label
            pods = [pod for pod in self.world.pods.values() if pod.labels.get(group) == job and label in pod.labels]
            self.saved.setdefault(number, set()).update(pod.uid for pod in pods if pod.node)

    def answer(self) -> None:
        """All that are saved are told."""
        wanted = {number: job for job, number in self.esl.checkpoints.items()}
        for number in sorted(self.saved):
            if number in wanted:
                self._answered |= self.saved[number]
                self.world.perform(self.esl.checkpointed(wanted[number], number, self.world.now))
        self.saved.clear()


def policy() -> Gandiva:
    return Gandiva("pack", wait=30, rest=60)


def spread_world(
    cpus: dict[str, int], tasks: int, blocked: dict[str, int], seed: int = 0
) -> tuple[PolicyWorld, Saving]:
    """A job of so many tasks of one CPU, which runs; `blocked`: CPUs that were held while it was placed, on each node
    by a pod of that name, which is still there."""
    world = PolicyWorld(policy(), nodes(cpus), seed=seed, apart=True)
    application = Saving(world)
    for node, cpu in blocked.items():
        occupy(world, f"blocks-{node}", node, cpu)
    for i in range(tasks):
        world.ask(f"t{i}", "job", needs={CPU: MILLI})
    world.settle()
    return world, application


def occupy(world: PolicyWorld, name: str, node: str, cpu: int) -> None:
    """Somebody else's pod runs there."""
    world.create(name, needs={CPU: cpu * MILLI})
    world.bind(name, node)


def where(world: PolicyWorld, tasks: int) -> list[str | None]:
    return world.where(*(f"pack--t{i}" for i in range(tasks)))


def free(world: PolicyWorld, name: str) -> None:
    world.delete(f"blocks-{name}")
    world.settle()


def test_a_job_runs_spread_and_is_brought_together_with_the_same_requests_when_one_node_can_hold_it() -> None:
    world, application = spread_world({"n1": 4, "n2": 4}, 4, {"n1": 2, "n2": 2})
    assert sorted(map(str, where(world, 4))) == ["n1", "n1", "n2", "n2"]
    before = {name: world.pods[name].requests for name in world.pods}
    assert application.esl.checkpoints == {}
    free(world, "n2")
    assert application.esl.checkpoints == {"job": 1}
    assert [notice.text for notice in world.notices] == [
        "checkpoint 1 of job job is wanted: node n2 can hold all its 4 tasks"
    ]
    world.pass_time(1000)
    assert application.stopped == {}, "nothing is stopped before it is saved"
    application.save()
    application.answer()
    world.settle()
    assert where(world, 4) == ["n2"] * 4
    assert application.stopped == {f"pack--t{i}": 1 for i in range(4)}
    assert {name: world.pods[name].requests for name in world.pods} == {
        name: requests for name, requests in before.items() if name != "blocks-n2"
    }
    world.pass_time(1000)
    assert where(world, 4) == ["n2"] * 4
    assert len(world.notices) == 1
    assert world.capacity("job").keys() == {"n1", "n2"}, "who comes later may go anywhere"


@pytest.mark.parametrize("seed", range(8))
def test_if_the_node_fills_up_while_the_job_is_stopped_it_runs_anywhere_again(seed: int) -> None:
    world, application = spread_world({"n1": 4, "n2": 4}, 4, {"n1": 2, "n2": 2}, seed)
    free(world, "n2")
    application.save()
    application.answer()
    while len([name for name in world.pods if name.startswith("pack")]) > 2:
        world.actions()[0]()
    occupy(world, "other", "n2", 2)
    world.pass_time(31)
    assert all(where(world, 4))
    assert application.lost == []


def test_if_the_node_fills_up_when_the_job_is_launched_again_it_runs_anywhere_at_once() -> None:
    world, application = spread_world({"n1": 4, "n2": 4}, 4, {"n1": 2, "n2": 2})
    free(world, "n2")
    application.save()
    application.answer()
    while application.stopped.total() < 4 or not all(f"pack--t{i}" in world.pods for i in range(4)):
        world.actions()[0]()
    assert where(world, 4) == [None] * 4
    occupy(world, "other", "n2", 2)
    world.settle()
    assert all(where(world, 4))


def test_after_a_move_that_failed_the_next_is_not_tried_at_once_but_later() -> None:
    world, application = spread_world({"n1": 4, "n2": 4}, 4, {"n1": 2, "n2": 2})
    free(world, "n2")
    application.save()
    refused = application.look
    world.refuse = lambda effect: "forbidden" if isinstance(effect, RemoveCapacity) else refused(effect)
    application.answer()
    world.settle()
    assert list(world.pods) == ["blocks-n1"], "they are launched when only the one node has the mark"
    world.pass_time(31)
    assert all(where(world, 4)), "the mark could not be taken from the other node, so they run anywhere"
    world.refuse = refused
    if len(set(where(world, 4))) > 1:
        assert application.esl.checkpoints == {}
        world.pass_time(61)
        assert application.esl.checkpoints == {"job": 2}


def test_a_checkpoint_is_not_wanted_any_more_when_the_node_fills_up_and_an_answer_that_is_late_stops_nobody() -> None:
    world, application = spread_world({"n1": 4, "n2": 4}, 4, {"n1": 2, "n2": 2})
    free(world, "n2")
    application.save()
    late = dict(application.saved)
    assert late.keys() == {1}
    occupy(world, "other", "n2", 1)
    world.settle()
    assert application.esl.checkpoints == {}
    assert world.notices[-1].text == "checkpoint 1 of job job is no longer wanted; its tasks go on"
    world.delete("other")
    world.settle()
    assert application.esl.checkpoints == {"job": 2}
    world.perform(application.esl.checkpointed("job", 1, world.now))
    world.settle()
    assert application.stopped == {}


def test_a_task_that_is_lost_after_the_checkpoint_was_wanted_makes_it_void() -> None:
    world, application = spread_world({"n1": 4, "n2": 4}, 4, {"n1": 2, "n2": 2})
    free(world, "n2")
    world.delete("pack--t0")
    world.settle()
    assert application.esl.checkpoints == {"job": 2}, "of those three that are left"
    world.release("t0")
    world.ask("t0", "job", needs={CPU: MILLI})
    world.settle()
    assert application.esl.checkpoints in ({"job": 3}, {})
    world.perform(application.esl.checkpointed("job", 2, world.now))
    world.settle()
    assert application.stopped == {}


def test_when_the_node_is_lost_during_the_move_the_job_runs_anywhere_again() -> None:
    world, application = spread_world({"n1": 4, "n2": 4, "n3": 4}, 4, {"n1": 2, "n2": 2, "n3": 4})
    free(world, "n2")
    application.save()
    application.answer()
    world.lose_node("n2")
    world.settle()
    free(world, "n3")
    world.pass_time(31)
    left = [name for name in world.pods if name.startswith("pack")]
    assert left
    assert all(world.where(*left))


def test_two_jobs_are_moved_each_to_a_node_of_its_own() -> None:
    world, application = spread_world({"n1": 4, "n2": 4}, 2, {"n1": 3, "n2": 3})
    free(world, "n1")
    free(world, "n2")
    for i in range(2):
        world.ask(f"u{i}", "other", needs={CPU: MILLI})
    for _ in range(5):
        world.pass_time(100)
        application.save()
        application.answer()
    world.settle()
    assert len(set(world.where("pack--t0", "pack--t1"))) == 1
    assert len(set(world.where("pack--u0", "pack--u1"))) == 1


def test_a_task_that_is_gone_is_not_launched_again_unless_it_was_stopped_by_us() -> None:
    world, _ = spread_world({"n1": 4}, 2, {})
    world.delete("pack--t0")
    world.pass_time(100)
    assert "pack--t0" not in world.pods
    assert world.notices[-1].text == "pod pack--t0 ran and is gone; release and ask again to recreate it"


def test_an_application_that_dies_in_the_middle_of_a_move_finds_its_job_and_launches_what_is_not_there() -> None:
    world, application = spread_world({"n1": 4, "n2": 4}, 4, {"n1": 2, "n2": 2})
    free(world, "n2")
    application.save()
    application.answer()
    while not application.stopped:
        world.actions()[0]()
    world.restart(policy())
    for i in range(4):
        world.ask(f"t{i}", "job", needs={CPU: MILLI})
    world.pass_time(100)
    assert all(where(world, 4))
    assert application.lost == []


def test_nothing_is_left_when_the_job_has_finished() -> None:
    world, _ = spread_world({"n1": 4, "n2": 4}, 4, {})
    for i in range(4):
        world.finish(f"pack--t{i}")
    world.settle()
    assert world.units == {}
    assert world.esl.next_deadline() is None
    world.ask("t0", "job", needs={CPU: MILLI})
    world.settle()
    assert world.units == {}, "it has run"


class Orders(RuleBasedStateMachine):
    """A job that is spread and could be together, and another whose tasks come; others take room and give it back; the
    application saves and answers when it likes, dies and asks again; nodes come, are lost, cordoned and forget; effects
    and news are late."""

    def __init__(self) -> None:
        super().__init__()
        self.world, self.application = spread_world({"n1": 3, "n2": 3}, 3, {"n1": 1, "n2": 1})
        free(self.world, "n1")
        self.asked = {f"t{i}": "job" for i in range(3)}
        self.may_run: Counter[str] = Counter(dict.fromkeys(self.asked, 1))
        self.requests: dict[str, set[tuple[tuple[str, int], ...]]] = defaultdict(set)
        self.others = 0

    @rule(name=st.sampled_from(["t0", "t1", "t2", "u0", "u1"]))
    def ask(self, name: str) -> None:
        self.asked[name] = "job" if name.startswith("t") else "other"
        self.may_run[name] = max(1, self.may_run[name])
        self.world.ask(name, self.asked[name], needs={CPU: MILLI})

    @precondition(lambda self: self.asked)
    @rule(pick=st.integers(0, 1000), again=st.booleans())
    def release(self, pick: int, again: bool) -> None:
        name = sorted(self.asked)[pick % len(self.asked)]
        del self.asked[name]
        self.may_run[name] += 1
        self.world.release(name)
        if again:
            self.ask(name)

    @rule(cpu=st.integers(0, 2))
    def others_take_room_or_give_it_back(self, cpu: int) -> None:
        if cpu:
            self.others += 1
            self.world.create(f"other{self.others}", needs={CPU: cpu * MILLI})
            return
        for name in [name for name in self.world.pods if not name.startswith("pack")]:
            self.world.delete(name)

    @precondition(lambda self: any(name.startswith("pack") for name in self.world.pods))
    @rule(pick=st.integers(0, 1000), kept=st.booleans())
    def a_pod_ends(self, pick: int, kept: bool) -> None:
        names = sorted(name for name in self.world.pods if name.startswith("pack"))
        pod = self.world.pods[names[pick % len(names)]]
        if kept and pod.node is not None:
            self.world.finish(pod.name)
        else:
            self.world.delete(pod.name)

    @rule(picks=st.lists(st.integers(0, 1000), min_size=1, max_size=15))
    def something_happens(self, picks: list[int]) -> None:
        for pick in picks:
            if actions := self.world.actions():
                actions[pick % len(actions)]()

    @rule()
    def all_comes_to_rest(self) -> None:
        self.world.settle()

    @rule(saves=st.booleans(), answers=st.booleans())
    def the_application_saves_and_answers(self, saves: bool, answers: bool) -> None:
        if saves:
            self.application.save()
        if answers:
            self.application.answer()

    @precondition(lambda self: self.world.esl.next_deadline() is not None)
    @rule()
    def a_deadline_passes(self) -> None:
        self.world.now = max(self.world.now, self.world.esl.next_deadline() or 0.0)
        self.world.perform(self.world.esl.handle(TimePassed(), self.world.now))

    @rule(
        name=st.sampled_from(["n1", "n2", "n3"]), what=st.sampled_from(["lost", "cordoned", "open", "forgets", "dies"])
    )
    def there_is_trouble(self, name: str, what: str) -> None:
        if what == "dies":
            self.the_application_dies()
        elif name not in self.world.nodes:
            self.world.add_node(nodes({name: 3})[0])
        elif what == "lost":
            self.world.lose_node(name)
        elif what == "forgets":
            self.world.reset_node(name)
        else:
            self.world.add_node(replace(self.world.nodes[NodeName(name)], unschedulable=what == "cordoned"))

    def the_application_dies(self) -> None:
        """It knows what it wants. Of what ran and is gone it knows nothing, nor of checkpoints."""
        for name in self.may_run:
            if f"pack--{name}" not in self.world.pods:
                self.may_run[name] += 1
        self.application.saved.clear()
        self.world.restart(policy())
        for name, job in self.asked.items():
            self.world.ask(name, job, needs={CPU: MILLI})

    @invariant()
    def nothing_is_stopped_that_is_not_saved(self) -> None:
        assert self.application.lost == []

    @invariant()
    def tasks_run_with_the_same_requests_and_no_more_often_than_they_were_stopped(self) -> None:
        for name, pod in self.world.pods.items():
            if name.startswith("pack"):
                self.requests[name].add(tuple(sorted(pod.requests.items())))
        assert all(len(said) == 1 for said in self.requests.values()), self.requests
        runs = Counter(name for name, _ in self.world.bound)
        for task, most in self.may_run.items():
            pod_name = f"pack--{task}"
            assert runs[pod_name] <= most + self.application.stopped[pod_name], (task, self.world.bound)

    def teardown(self) -> None:
        """In the end who is asked for runs, ran, or has room nowhere; and no job is apart that one node can hold."""
        for _ in range(12):
            self.world.pass_time(4000)
            self.application.save()
            self.application.answer()
        self.world.pass_time(4000)
        self.nothing_is_stopped_that_is_not_saved()
        self.tasks_run_with_the_same_requests_and_no_more_often_than_they_were_stopped()
        open_nodes = [name for name, node in self.world.nodes.items() if not node.unschedulable]
        for name in self.asked:
            pod = self.world.pods.get(f"pack--{name}")
            assert pod is not None or f"pack--{name}" in dict(self.world.bound)
            if pod is not None and pod.node is None:
                assert all(self.world.left(node, CPU) < MILLI for node in open_nodes)
        for job in ("job", "other"):
            names = [name for name in self.asked if self.asked[name] == job and f"pack--{name}" in self.world.pods]
            pods = [pod for name in names if not (pod := self.world.pods[f"pack--{name}"]).finished]
            of_job = [pod for pod in self.world.pods.values() if pod.labels.get(self.world.esl.group_label) == job]
            strays = len([pod for pod in of_job if not pod.finished]) > len(pods)
            if all(pod.node for pod in pods) and len({pod.node for pod in pods}) > 1 and not strays:
                for node in open_nodes:
                    away = sum(pod.node != node for pod in pods)
                    assert self.world.left(node, CPU) < away * MILLI, (job, node)
        for name in list(self.asked):
            self.world.release(name)
        for name in list(self.world.pods):
            self.world.delete(name)
        self.world.pass_time(4000)
        assert self.world.units == {}
        assert not [name for name in self.world.pods if name.startswith("pack")]


TestOrders = Orders.TestCase
TestOrders.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
