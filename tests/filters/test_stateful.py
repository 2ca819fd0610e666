"""Policies in a `Scheduler`, whatever happens: what they promise holds after every step."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from extender.app.cycle.scheduler import Scheduler
from extender.core.cluster import Pod
from extender.core.feedback import Bound
from extender.core.policies.policy_matching import POLICY
from extender.core.policies.policy_types import HOSTNAME, AntiAffinity, DataLocality, PolicyInForce
from extender.core.policy import Allow, Facts
from extender.filters.share_order import SHARE, WEIGHT, ShareOrder
from extender.kube.names import NodeName, PodUid, ResourceKey
from tests.builders import ledger_of, node, pod
from tests.core.gang_world import FixedClock
from tests.performing import Performing

NAMES = [NodeName(f"n{number}") for number in range(4)]
names = st.sampled_from(NAMES)
groups = st.sampled_from(["web", "db", None])
LICENCE = "escher.dev/default.licence"
WANTED = ("disk", "zone", "disk-zone")
"""Policies that prefer nodes with these data."""


class AntiAffinityMachine(RuleBasedStateMachine, Performing):
    """A scheduler that binds wherever it is let, and pods that come, change their policy, and go."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = Scheduler(FixedClock())
        for name in NAMES:
            self.do(self.scheduler.observe(node(name, {"cpu": 3000}, labels={HOSTNAME: name})))
            self.do(self.scheduler.set_capacity(name, LICENCE, 2))  # type: ignore[arg-type]
        for group in ("web", "db"):
            self.do(self.scheduler.govern("default", group, PolicyInForce(AntiAffinity(), None)))
        self.pods: dict[str, Pod] = {}
        self.moved: set[str] = set()
        """Whose group was changed while they were bound: who stands with whom is then nobody's fault."""
        self.count = 0

    @rule(group=groups, asks=st.booleans())
    def create(self, group: str | None, asks: bool) -> None:
        self.count += 1
        wanted = {"cpu": 1000} | ({LICENCE: 1} if asks else {})
        made = pod(f"p{self.count}", wanted, annotations={POLICY: group} if group else {})
        self.pods[made.name] = made
        self.do(self.scheduler.observe(made))

    @precondition(lambda self: self.pods)
    @rule(data=st.data(), sent=st.lists(names, unique=True, min_size=1))
    def schedule(self, data: st.DataObject, sent: list[NodeName]) -> None:
        chosen = self.pods[data.draw(st.sampled_from(sorted(self.pods)))]
        if chosen.node is not None:
            return
        passed = list(self.do(self.scheduler.filter(chosen, sent)).passed)
        for name in passed:
            assert not self.of_its_group(chosen, name)
        if passed and isinstance(self.do(self.scheduler.permit(chosen.uid, passed[-1])), Allow):
            self.do(self.scheduler.on_event(Bound(chosen.uid, passed[-1])))
            self.pods[chosen.name] = replace(chosen, node=passed[-1])

    @precondition(lambda self: self.pods)
    @rule(data=st.data(), group=groups)
    def regroup(self, data: st.DataObject, group: str | None) -> None:
        name = data.draw(st.sampled_from(sorted(self.pods)))
        changed = replace(self.pods[name], annotations={POLICY: group} if group else {})
        self.moved.add(name)
        self.pods[name] = changed
        self.do(self.scheduler.observe(changed))

    @precondition(lambda self: self.pods)
    @rule(data=st.data(), finished=st.booleans())
    def end(self, data: st.DataObject, finished: bool) -> None:
        gone = self.pods.pop(data.draw(st.sampled_from(sorted(self.pods))))
        if finished:
            self.do(self.scheduler.observe(replace(gone, finished=True)))
        else:
            self.do(self.scheduler.forget(gone))

    def of_its_group(self, asking: Pod, name: NodeName) -> list[str]:
        group = asking.annotations.get(POLICY)
        others = (each for each in self.pods.values() if each.name != asking.name and each.node == name)
        return [each.name for each in others if group is not None and each.annotations.get(POLICY) == group]

    @invariant()
    def no_node_has_two_of_a_group(self) -> None:
        settled = [each for each in self.pods.values() if each.node is not None and each.name not in self.moved]
        held = Counter((each.node, each.annotations[POLICY]) for each in settled if POLICY in each.annotations)
        assert not [pair for pair, times in held.items() if times > 1]

    @invariant()
    def the_ledger_is_sound(self) -> None:
        assert self.scheduler.cache.violations() == []


class PreferenceMachine(RuleBasedStateMachine, Performing):
    """Nodes whose data come and go, and pods that prefer data: who reserves gets the best of those with room."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = Scheduler(FixedClock())
        self.data: dict[NodeName, set[str]] = {name: set() for name in NAMES}
        self.free: dict[NodeName, int] = {}
        self.count = 0
        for name in NAMES:
            self.free[name] = 3
            self.do(self.scheduler.observe(node(name)))
            self.do(self.scheduler.set_capacity(name, LICENCE, 3))  # type: ignore[arg-type]

        for wanted in WANTED:
            prefers = DataLocality(tuple(wanted.split("-")), required=False)
            self.do(self.scheduler.govern("default", wanted, PolicyInForce(prefers, None)))

    @rule(name=names, data=st.sampled_from(["disk", "zone"]), is_there=st.booleans())
    def place_data(self, name: NodeName, data: str, is_there: bool) -> None:
        (self.data[name].add if is_there else self.data[name].discard)(data)
        self.do(self.scheduler.set_capacity(name, ResourceKey(f"escher.dev/default.{data}"), int(is_there)))

    @rule(wanted=st.sampled_from(WANTED))
    def schedule(self, wanted: str) -> None:
        self.count += 1
        asker = pod(f"p{self.count}", {LICENCE: 1}, annotations={POLICY: wanted})
        self.do(self.scheduler.observe(asker))
        passed = self.do(self.scheduler.filter(asker, NAMES)).passed
        room = [name for name in NAMES if self.free[name]]
        assert len(passed) == min(1, len(room))
        for name in passed:
            assert self.worth(name, wanted) == max(self.worth(each, wanted) for each in room)
            self.free[name] -= 1
            assert self.do(self.scheduler.permit(asker.uid, name)) == Allow()
            self.do(self.scheduler.on_event(Bound(asker.uid, name)))

    def worth(self, name: NodeName, wanted: str) -> float:
        """The part of the data that is there: the pod's own policy decides alone."""
        names = wanted.split("-")
        return sum(each in self.data[name] for each in names) / len(names)

    @rule(sent=st.lists(names, unique=True))
    def ask(self, sent: list[NodeName]) -> None:
        """prioritize says so too, of pods that kube-scheduler places."""
        scores = self.scheduler.prioritize(pod("other", annotations={POLICY: "disk"}), sent)
        assert scores == {name: 10 for name in sent if "disk" in self.data[name]}


class ShareMachine(RuleBasedStateMachine, Performing):
    """The order of shares is that of a twin that counts all pods anew."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = ShareOrder()
        self.facts = Facts(ledger_of({name: {"cpu": 8000, "memory": 100} for name in NAMES}), {})
        self.pods: dict[str, Pod] = {}
        self.held: set[PodUid] = set()
        self.seen = dict[str, float]()
        self.version = -1

    shares = st.sampled_from(["red", "blue"])

    @rule(
        number=st.integers(0, 5),
        share=st.one_of(shares, st.none()),
        weight=st.sampled_from(["1", "3", None]),
        cpu=st.sampled_from([1000, 4000]),
        memory=st.sampled_from([0, 40]),
        bound=st.booleans(),
    )
    def see(self, number: int, share: str | None, weight: str | None, cpu: int, memory: int, bound: bool) -> None:
        said = {key: value for key, value in {SHARE: share, WEIGHT: weight}.items() if value is not None}
        seen = pod(f"p{number}", {"cpu": cpu, "memory": memory}, node=NAMES[0] if bound else None, annotations=said)
        self.pods[seen.name] = seen
        if bound:
            self.held.discard(seen.uid)
        self.policy.observe(seen, 0.0)

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        gone = self.pods.pop(data.draw(st.sampled_from(sorted(self.pods))))
        self.policy.forget(gone)
        self.held.discard(gone.uid)
        self.policy.hold({gone.uid: False})

    @rule(number=st.integers(0, 5), held=st.booleans())
    def hold(self, number: int, held: bool) -> None:
        """A place is held for the pod, or no more; it may not be known yet."""
        uid = PodUid(f"uid-p{number}")
        seen = self.pods.get(f"p{number}")
        if seen is None or seen.node is None:
            (self.held.add if held else self.held.discard)(uid)
            self.policy.hold({uid: held})

    @rule(share=shares)
    def ask(self, share: str) -> None:
        members = [pod("m", annotations={SHARE: share})]
        order = self.policy.order(members, self.facts)
        assert abs(order - self.counted_anew(share)) < 1e-9
        if self.version == self.policy.order_version and share in self.seen:
            assert self.seen[share] == order
        elif self.version != self.policy.order_version:
            self.seen.clear()
        self.version = self.policy.order_version
        self.seen[share] = order

    def counted_anew(self, share: str) -> float:
        own = [each for each in self.pods.values() if each.annotations.get(SHARE) == share]
        weight = max((int(each.annotations.get(WEIGHT, "1")) for each in own), default=1)
        bound = [each.requests for each in own if each.node is not None or each.uid in self.held]
        total = {"cpu": 32_000, "memory": 400}
        parts = [sum(units.get(name, 0) for units in bound) / total[name] for name in total]  # type: ignore[call-overload]
        return float(max(parts)) / weight


TestAntiAffinity = AntiAffinityMachine.TestCase
TestPreference = PreferenceMachine.TestCase
TestShares = ShareMachine.TestCase
TestAntiAffinity.settings = TestPreference.settings = settings(max_examples=25)
