"""Policies asked as one: one that places pods by itself, one that wants something done, and a defect of one of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from extender.app.contracts.effects import BindAnswered, Effect, PolicyFailed
from extender.app.cycle.scheduler import Scheduler
from extender.app.policies.fault_isolation import FAILED
from extender.core.cluster import Pod
from extender.core.feedback import Feedback, SwitchesChanged
from extender.core.gangs.state.gang import GangEffect, OpenBarrier, WakePod
from extender.core.names import GangKey
from extender.core.policy import Allow, Facts, NodeFilter, Permit, Policy, Refuse, Wait
from extender.kube.names import NodeName, PodUid
from tests.builders import node, pod
from tests.core.gang_world import FixedClock
from tests.performing import Performing

N1, N2 = NodeName("n1"), NodeName("n2")
NOT_YET = Refuse("not yet", preemption_helps=False)


class Room(Performing):
    def __init__(self, *policies: Policy) -> None:
        self.clock = FixedClock()
        self.scheduler = Scheduler(self.clock, policies=policies)
        self.effects: list[Effect] = []
        for name in (N1, N2):
            self.do(self.scheduler.observe(node(name)))

    def take(self, effects: Sequence[Effect]) -> None:
        self.effects += effects

    def failed(self) -> list[str]:
        return [effect.policy for effect in self.effects if isinstance(effect, PolicyFailed)]


class Pairs:
    """Pods named alike come in pairs, both on the last node that is offered; who is alone waits."""

    name = "pairs"

    def __init__(self) -> None:
        self.asleep: list[Pod] = []
        self.at_the_door: list[Pod] = []
        self.effects: list[GangEffect] = []

    def places(self, pod: Pod) -> bool:
        return pod.name.startswith("twin")

    def place(self, pod: Pod, nodes: Sequence[NodeName], now: float) -> NodeName | Refuse:
        self.effects += map(WakePod, self.asleep)
        self.asleep = [] if self.asleep else [pod]
        return NOT_YET if self.asleep else nodes[-1]

    def owns(self, uid: PodUid) -> bool:
        return uid.startswith("uid-twin")

    def would_refuse(self, pod: Pod, nodes: Sequence[NodeName]) -> str:
        return "" if self.asleep else NOT_YET.reason

    def sleeps(self, pod: Pod, now: float) -> bool:
        return True

    def permit(self, pod: Pod, node: NodeName, facts: Facts, now: float) -> Permit:
        if not self.owns(pod.uid):
            return Allow()
        self.at_the_door.append(pod)
        if len(self.at_the_door) == 2:
            self.effects.append(OpenBarrier(GangKey("default", "twins"), tuple(each.uid for each in self.at_the_door)))
        return Wait(None, "the other twin is not here yet")

    def take_effects(self) -> Sequence[GangEffect]:
        taken, self.effects = self.effects, []
        return taken

    def on_event(self, told: Feedback, now: float) -> None: ...


class Curfew:
    name = "curfew"

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.over = False

    def permit(self, pod: Pod, node: NodeName, facts: Facts, now: float) -> Permit:
        self.asked.append(pod.name)
        return Allow() if self.over else Wait(now + 60, "it is late")


def test_a_policy_may_find_the_place_of_its_pods_by_itself() -> None:
    room = Room(Pairs())
    one, other = pod("twin-1"), pod("twin-2")
    verdict = room.do(room.scheduler.filter(one, [N1, N2]))
    assert (verdict.passed, set(verdict.unresolvable.values())) == ((), {"not yet"})
    assert list(room.do(room.scheduler.filter(other, [N1, N2])).passed) == [N2]
    assert [effect.pod.name for effect in room.effects if isinstance(effect, WakePod)] == ["twin-1"]
    assert list(room.do(room.scheduler.filter(pod("single"), [N1, N2])).passed) == [N1, N2]


def test_who_places_a_pod_has_the_last_word_on_its_bind_and_answers_by_an_effect() -> None:
    pairs, curfew = Pairs(), Curfew()
    room = Room(pairs, curfew)
    twins = [pod("twin-1"), pod("twin-2")]
    for twin in twins:
        room.do(room.scheduler.observe(twin))
        assert room.do(room.scheduler.permit(twin.uid, N2)) == Wait(60 + room.clock.steady(), "it is late")
    assert not pairs.at_the_door, "asked when all others allow"
    curfew.over = True
    room.effects.clear()
    room.do(room.scheduler.settle())
    assert pairs.at_the_door == twins
    assert [type(effect) for effect in room.effects] == [OpenBarrier], "nobody else answers"
    assert not [effect for effect in room.effects if isinstance(effect, BindAnswered)]


class Broken:
    """Every question about time, places and what is to be done meets a defect."""

    name = "broken"

    def __init__(self) -> None:
        self.ticks = self.settled = 0

    def places(self, pod: Pod) -> bool:
        return pod.name == "unlucky"

    def owns(self, uid: PodUid) -> bool:
        raise ZeroDivisionError

    def place(self, pod: Pod, nodes: Sequence[NodeName], now: float) -> NodeName | Refuse:
        raise ZeroDivisionError

    def would_refuse(self, pod: Pod, nodes: Sequence[NodeName]) -> str:
        raise ZeroDivisionError

    def sleeps(self, pod: Pod, now: float) -> bool:
        raise ZeroDivisionError

    def next_deadline(self) -> float | None:
        return 0.0

    def tick(self, now: float) -> Sequence[NodeName]:
        self.ticks += 1
        raise ZeroDivisionError

    def begin_slice(self, now: float) -> None:
        raise ZeroDivisionError

    def has_work(self, now: float) -> bool:
        return True

    def settle(self, gains: Collection[NodeName], now: float) -> None:
        self.settled += 1
        raise ZeroDivisionError

    def left_for_others(self, gains: Collection[NodeName]) -> Collection[NodeName]:
        raise ZeroDivisionError

    def slice_is_over(self) -> bool:
        raise ZeroDivisionError

    def take_effects(self) -> Sequence[GangEffect]:
        raise ZeroDivisionError

    def on_event(self, told: Feedback, now: float) -> None:
        raise ZeroDivisionError


class Wrong:
    """About every node, and not about each alike."""

    name = "wrong"

    def filter(self, pod: Pod, facts: Facts) -> NodeFilter | None:
        def judge(node: NodeName) -> Refuse | None:
            raise KeyError(node) if node.endswith("7") else ZeroDivisionError

        return judge


class TestADefect:
    def test_is_told_and_refuses_the_pods_that_the_policy_was_asked_about_and_no_others(self) -> None:
        room = Room(Broken())
        assert set(room.do(room.scheduler.filter(pod("unlucky"), [N1, N2])).unresolvable.values()) == {FAILED}
        assert list(room.do(room.scheduler.filter(pod("lucky"), [N1, N2])).passed) == [N1, N2]
        room.do(room.scheduler.on_event(SwitchesChanged()))
        assert set(room.failed()) == {"broken"}

    def test_that_is_met_on_many_nodes_is_told_once_a_call(self) -> None:
        room = Room(Wrong())
        nodes = [NodeName(f"n{number}") for number in range(5000)]
        assert len(room.do(room.scheduler.filter(pod("a"), nodes)).unresolvable) == 5000
        assert sorted(room.failed()) == ["wrong", "wrong"]
        assert {type(effect.defect) for effect in room.effects if isinstance(effect, PolicyFailed)} == {
            ZeroDivisionError,
            KeyError,
        }

    def test_in_settling_leaves_the_policy_alone_for_a_second_and_nobody_else(self) -> None:
        broken, calm = Broken(), Settling()
        room = Room(broken, calm)
        room.clock.time += 1.0
        room.do(room.scheduler.tick())
        asked, others = broken.settled, calm.settled
        room.do(room.scheduler.observe(node(N1, {"cpu": 9000})))
        room.do(room.scheduler.observe(node(N1, {"cpu": 10000})))
        assert broken.settled == asked, "it rests"
        assert calm.settled == others + 2
        assert not room.scheduler.more_to_do

    def test_in_what_is_due_leaves_the_policy_alone_for_a_second(self) -> None:
        broken = Broken()
        room = Room(broken)
        for _ in range(3):
            room.do(room.scheduler.tick())
            due = room.scheduler.next_deadline()
            assert due is not None
            assert due > room.clock.steady()
            room.clock.time = due
        assert broken.ticks == 2, "when the service began it was left alone already"

    def test_of_its_own_place_leaves_nobody_asleep_for_ever(self) -> None:
        broken = Broken()
        room = Room(broken)
        room.do(room.scheduler.observe(pod("unlucky")))
        assert not room.do(room.scheduler.filter(pod("unlucky"), [N1, N2])).passed
        room.do(room.scheduler.observe(node(N1, {"cpu": 9000})))
        assert [effect.pod.name for effect in room.effects if isinstance(effect, WakePod)] == ["unlucky"]


class Settling:
    name = "settling"

    def __init__(self) -> None:
        self.settled = 0

    def begin_slice(self, now: float) -> None: ...

    def has_work(self, now: float) -> bool:
        return False

    def settle(self, gains: Collection[NodeName], now: float) -> None:
        self.settled += 1

    def left_for_others(self, gains: Collection[NodeName]) -> Collection[NodeName]:
        return gains

    def slice_is_over(self) -> bool:
        return False
