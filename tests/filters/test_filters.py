"""What each filter says of a node, asked by itself: whether it has a say, why not there, and if preemption helps."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from extender.core.gangs.gangs import Gangs
from extender.core.gangs.state.gang import NOT_ITS_NODE
from extender.core.ledger.ledger import Holder, Ledger
from extender.core.ledger.units import Short
from extender.core.names import in_domain
from extender.core.policy import Facts, Refuse
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

    @given(st.data())
    def test_what_is_seen_at_a_look_is_what_the_ledger_says(self, data: st.DataObject) -> None:
        few = st.dictionaries(st.sampled_from([R, ResourceKey("escher.dev/team.s")]), st.integers(0, 2))
        ledger = ledger_of({name: data.draw(few) for name in ("n1", "n2")})
        asking, holder = pod("p", data.draw(few)), pod("holder").uid
        for uid, node in ((asking.uid, "n1"), (holder, "n2")):
            held = {resource: units for resource, units in data.draw(few).items() if units}
            if held:
                ledger.confirm(uid, on=NodeName(node), units=units(held))
        if data.draw(st.booleans()):
            ledger.capacity.remove_node(N2)
        gives_way = [Holder(holder)] if data.draw(st.booleans()) else []
        facts = Facts(ledger, {}, giving_way=lambda each: {N2: gives_way})
        judge = EphemeralFit().filter(asking, facts) or (lambda node: None)
        asked = {key: units for key, units in asking.requests.items() if in_domain(key, ledger.capacity.domain)}
        for node in (N1, N2, N3):
            short = ledger.rows.short(node, asked, (asking.uid, *(gives_way if node == N2 else ())))
            exists = short is not None and node in ledger.totals.providers.get(short.resource, ())
            plain = short and (Refuse(REASON, short) if exists else Refuse(ABSENT, short, preemption_helps=False))
            found = judge(node)
            if found is not None and not exists and found.short is not None and found.short.free == 0:
                # Of what does not exist there, none is free, though some be held that a node has lost.
                found = replace(found, short=short)
            assert found == plain

    def test_only_the_ledgers_own_domain_is_ours(self) -> None:
        ledger, key = Ledger("example.org"), ResourceKey("example.org/team.r")
        ledger.capacity.set_node(N1, units(cpu=1000))
        assert EphemeralFit().filter(pod("p", {R: 1}), Facts(ledger, {})) is None
        judge = EphemeralFit().filter(pod("p", {key: 1}), Facts(ledger, {}))
        assert judge is not None
        assert judge(N1) == Refuse(ABSENT, Short(key, 1, 0), preemption_helps=False)
