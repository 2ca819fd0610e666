"""What each filter says of a node, asked by itself: whether it has a say, why not there, and if preemption helps."""

from __future__ import annotations

from extender.core.gangs.gang import NOT_ITS_NODE
from extender.core.gangs.gangs import Gangs
from extender.core.ledger import Holder, Ledger
from extender.core.policy import Facts, Refuse
from extender.core.units import Short
from extender.filters.ephemeral_fit import ABSENT, REASON, EphemeralFit
from extender.filters.gang import GangPlacing
from extender.kube.names import NodeName, ResourceKey
from tests.builders import gang_ask, ledger_of, pod, slot, units

N1, N2, N3 = NodeName("n1"), NodeName("n2"), NodeName("n3")
R = ResourceKey("escher.dev/team.r")


class TestGang:
    def test_a_pod_of_no_gang_is_none_of_its_business(self) -> None:
        ledger = ledger_of({"n1": {"cpu": 1000}})
        assert GangPlacing(Gangs(ledger, {})).filter(pod(), Facts(ledger, {})) is None

    def test_a_member_goes_where_its_place_is_and_nowhere_without_one(self) -> None:
        ledger = ledger_of({"n1": {"cpu": 1000}, "n2": {"cpu": 1000}})
        member = pod("train-0", gang=gang_ask())
        elsewhere = Refuse(NOT_ITS_NODE, preemption_helps=False)
        judge = GangPlacing(Gangs(ledger, {})).filter(member, Facts(ledger, {}))
        assert judge is not None
        assert [judge(N1), judge(N2)] == [elsewhere, elsewhere]
        ledger.commit([slot(member.uid, "n2", {"cpu": 1000})])
        judge = GangPlacing(Gangs(ledger, {})).filter(member, Facts(ledger, {}))
        assert judge is not None
        assert [judge(N1), judge(N2)] == [elsewhere, None]


class TestEphemeralFit:
    def test_a_pod_that_asks_for_nothing_of_ours_is_none_of_its_business(self) -> None:
        assert EphemeralFit().filter(pod(), Facts(ledger_of({"n1": {R: 1}}), {})) is None

    def test_what_is_held_may_be_freed_by_preemption_and_what_is_absent_may_not(self) -> None:
        ledger = ledger_of({"n1": {R: 2}, "n2": {R: 1}, "n3": {}})
        ledger.confirm(pod("holder").uid, on=N1, units=units({R: 1}))
        judge = EphemeralFit().filter(pod("p", {R: 2}), Facts(ledger, {}))
        assert judge is not None
        assert judge(N1) == Refuse(REASON, Short(R, 2, 1))
        assert judge(N2) == Refuse(REASON, Short(R, 2, 1))
        assert judge(N3) == Refuse(ABSENT, Short(R, 2, 0), preemption_helps=False)

    def test_what_the_pod_holds_itself_and_what_gives_way_to_it_count_as_free(self) -> None:
        ledger = ledger_of({"n1": {R: 1}, "n2": {R: 1}})
        asking = pod("p", {R: 1})
        ledger.commit([slot(asking.uid, "n1", {R: 1}), slot("saved", "n2", {R: 1})])
        judge = EphemeralFit().filter(asking, Facts(ledger, {}))
        assert judge is not None
        assert judge(N1) is None
        assert judge(N2) == Refuse(REASON, Short(R, 1, 0))
        judge = EphemeralFit().filter(asking, Facts(ledger, {}, giving_way=lambda each: {N2: [Holder("saved")]}))
        assert judge is not None
        assert judge(N2) is None

    def test_only_the_ledgers_own_domain_is_ours(self) -> None:
        ledger, key = Ledger("example.org"), ResourceKey("example.org/team.r")
        ledger.capacity.set_node(N1, units(cpu=1000))
        assert EphemeralFit().filter(pod("p", {R: 1}), Facts(ledger, {})) is None
        judge = EphemeralFit().filter(pod("p", {key: 1}), Facts(ledger, {}))
        assert judge is not None
        assert judge(N1) == Refuse(ABSENT, Short(key, 1, 0), preemption_helps=False)
