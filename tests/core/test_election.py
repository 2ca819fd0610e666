"""Of several candidates one leads at a time, whatever becomes of their requests and however their clocks are set."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.core.election import NOBODY, Act, Election, Record, Standing, Terms

TERMS = Terms.of(4)


class Store:
    """Where the record is: a write comes to be only on top of the version that it names."""

    def __init__(self) -> None:
        self.record = NOBODY
        self.version = 0

    def put(self, record: Record) -> Record | None:
        if record.version != self.record.version:
            return None
        self.version += 1
        self.record = replace(record, version=str(self.version))
        return self.record


def elected(me: str, store: Store, now: float) -> Election:
    """A candidate that has looked for as long as a lease holds, and done then what was to be done."""
    election = Election(me, f"http://{me}", TERMS)
    look(election, store, now - TERMS.lease)
    write(election, store, now)
    if election.next(now) is Act.LOOK:
        look(election, store, now)
    return election


def look(election: Election, store: Store, now: float) -> None:
    election.saw(store.record, now)


def write(election: Election, store: Store, now: float) -> None:
    if election.next(now) is Act.WRITE:
        wanted = election.wanted()
        election.sending(wanted, now)
        written = store.put(wanted)
        if written is None:
            election.refused(now)
        else:
            election.wrote(written, now, now)


def test_an_answer_that_comes_too_late_raises_nobody_again() -> None:
    """Others may have seen meanwhile that it leads no more, though nobody asked the election itself."""
    store = Store()
    election = elected("a", store, 10)
    wanted = election.wanted()
    election.sending(wanted, 11)
    written = store.put(wanted)
    assert written is not None
    assert not election.leads(10 + TERMS.permit)
    election.wrote(written, 11, 10 + TERMS.permit)
    assert election.standing(10 + TERMS.permit) is Standing.LOST


def test_the_first_leads_and_others_follow() -> None:
    store = Store()
    first, second = elected("a", store, 10), Election("b", "", TERMS)
    look(second, store, 10)
    assert second.next(10) is Act.REST
    assert first.leads(10)
    assert not second.leads(10)
    assert (second.record.holder, second.record.at, second.record.transitions) == ("a", "http://a", 0)


def test_who_leads_renews_and_rests_between() -> None:
    store = Store()
    first = elected("a", store, 10)
    assert first.next(10.4) is Act.REST
    assert first.due == 10 + TERMS.renew_every
    write(first, store, 11)
    assert store.record.version == "2"
    assert first.leads(11 + TERMS.permit - 0.01)


def test_who_cannot_renew_in_time_has_lost_for_good() -> None:
    store = Store()
    first = elected("a", store, 10)
    assert not first.leads(10 + TERMS.permit)
    first.saw(store.record, 10 + TERMS.permit)
    assert first.standing(10 + TERMS.permit) is Standing.LOST
    assert first.next(100) is Act.REST


def test_another_takes_over_when_the_record_has_not_changed_for_as_long_as_its_holder_said() -> None:
    store = Store()
    store.put(Record("a", "http://a", 7))
    second = Election("b", "", TERMS)
    look(second, store, 20)
    second.saw(store.record, 26.9)
    assert second.next(26.9) is Act.REST
    write(second, store, 27)
    assert second.leads(27)
    assert (store.record.holder, store.record.transitions) == ("b", 1)


@pytest.mark.parametrize("renewal", [1, 2])
def test_a_hand_that_makes_the_lease_hold_for_years_changes_nothing_also_where_its_holder_has_just_renewed_it(
    renewal: int,
) -> None:
    store = Store()
    store.put(Record("a", "http://a", 4, renewal=1))
    second = Election("b", "", TERMS)
    look(second, store, 20)
    store.put(replace(store.record, seconds=10**9, renewal=renewal))
    look(second, store, 21)
    due = 20 + TERMS.lease if renewal == 1 else 21 + TERMS.lease
    write(second, store, due)
    assert second.leads(due)


def test_where_there_is_no_record_one_is_made_only_when_nobody_can_lead_by_one_that_was_deleted() -> None:
    store = Store()
    first = elected("a", store, 10)
    second = Election("b", "", TERMS)
    look(second, store, 10)
    store.record = NOBODY
    look(second, store, 11)
    assert second.next(11) is Act.REST
    assert first.leads(11)
    look(second, store, 13)
    assert second.next(14.9) is not Act.WRITE
    assert not first.leads(14.9)
    write(second, store, 15)
    assert second.leads(15)


def test_what_was_given_back_is_taken_at_once() -> None:
    store = Store()
    first = elected("a", store, 10)
    second = Election("b", "", TERMS)
    look(second, store, 10)
    store.put(first.released())
    first.resign()
    look(second, store, 10.5)
    write(second, store, 10.5)
    assert second.leads(10.5)
    assert not first.leads(10.5)


def test_a_write_whose_answer_was_lost_counts_from_when_it_was_sent() -> None:
    store = Store()
    election = Election("a", "", TERMS)
    look(election, store, 10 - TERMS.lease)
    assert election.next(10) is Act.WRITE
    wanted = election.wanted()
    election.sending(wanted, 10)
    store.put(wanted)
    election.unheard(11)
    look(election, store, 11 + TERMS.look_every)
    assert election.leads(10 + TERMS.permit - 0.01)
    assert election.until == 10 + TERMS.permit


def test_a_renewal_that_another_change_met_is_made_on_top_of_it() -> None:
    store = Store()
    first = elected("a", store, 10)
    store.put(replace(store.record, at="http://edited"))
    write(first, store, 11)
    assert first.leads(11)
    look(first, store, 11)
    assert first.until == 10 + TERMS.permit, "an edit by somebody else is no renewal"
    write(first, store, 11 + TERMS.look_every)
    assert store.record.at == "http://a"
    assert first.leads(13)


@pytest.mark.parametrize("found", [NOBODY, Record("b", "", 4, version="9"), Record("", "", 1, version="9")])
def test_who_finds_another_or_nobody_in_its_record_has_lost(found: Record) -> None:
    first = elected("a", Store(), 10)
    first.saw(found, 10.5)
    assert first.standing(10.5) is Standing.LOST


def test_terms_that_leave_no_time_to_renew_are_refused() -> None:
    with pytest.raises(ValueError, match="leaves no time to renew"):
        Terms(4, renew_every=3, look_every=0.5, request=1, margin=0.5)


@pytest.mark.parametrize("lease", range(2, 61))
def test_a_renewal_that_fails_once_can_be_made_again_in_time(lease: int) -> None:
    terms = Terms.of(lease)
    assert terms.renew_every + terms.request + terms.look_every < terms.permit


# -- any candidates, any network ---------------------------------------------------------------------------------------


@dataclass
class Request:
    """One that was sent and has not been answered. Each part happens when it is drawn, or never."""

    of: int
    sent: float
    record: Record | None
    answer: Record | None = None
    arrived: bool = False


class Races:
    """Candidates with clocks of their own; their requests arrive late, and answers too, or never."""

    def __init__(self, ahead: list[float]) -> None:
        self.store = Store()
        self.now = 0.0
        self.ahead = ahead
        self.candidates = [Election(str(each), "", TERMS) for each in range(len(ahead))]
        self.under_way: list[Request] = []
        self.may_write_until = [0.0 for _ in ahead]
        """Until when, in true time, something may arrive that each has begun to write."""
        self.late: list[Request] = []
        """Given up by who sent them, and not arrived yet."""

    def clock(self, one: int) -> float:
        return self.now + self.ahead[one]

    def move(self, one: int) -> None:
        """It does what it is to do, unless it waits for an answer."""
        if any(each.of == one for each in self.under_way):
            return
        election, now = self.candidates[one], self.clock(one)
        match election.next(now):
            case Act.LOOK:
                self.under_way.append(Request(one, now, None))
            case Act.WRITE:
                wanted = election.wanted()
                election.sending(wanted, now)
                self.under_way.append(Request(one, now, wanted))
            case Act.REST:
                pass

    def arrive(self, at: int) -> None:
        waiting = [each for each in self.under_way if not each.arrived]
        if waiting:
            each = waiting[at % len(waiting)]
            each.arrived = True
            if each.record is None:
                each.answer = self.store.record
                return
            holder = self.store.record.holder
            each.answer = self.store.put(each.record)
            if each.answer is not None and holder != each.record.holder:
                others = [until for one, until in enumerate(self.may_write_until) if one != each.of]
                assert self.now >= max(others), "taken while a write of another may still arrive"

    def answer(self, at: int, heard: bool) -> None:
        if not self.under_way:
            return
        each = self.under_way.pop(at % len(self.under_way))
        election, now = self.candidates[each.of], self.clock(each.of)
        if not heard or not each.arrived:
            election.unheard(now)
            if not each.arrived and each.record is not None:
                self.late.append(each)
        elif each.answer is None:
            election.refused(now)
        elif each.record is None:
            election.saw(each.answer, now)
        else:
            election.wrote(each.answer, each.sent, now)

    def check(self) -> None:
        leading = [one for one, each in enumerate(self.candidates) if each.leads(self.clock(one))]
        assert len(leading) <= 1, "two lead"
        for one in leading:
            self.may_write_until[one] = max(self.may_write_until[one], self.now + TERMS.request)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("pass"), st.floats(0, 3)),
        st.tuples(st.just("pass"), st.floats(0, 0.3)),
        st.tuples(st.just("move"), st.integers(0, 2)),
        st.tuples(st.just("arrive"), st.integers(0, 5)),
        st.tuples(st.just("late"), st.integers(0, 5)),
        st.tuples(st.just("answer"), st.integers(0, 5)),
        st.tuples(st.just("lose"), st.integers(0, 5)),
        st.tuples(st.just("round"), st.integers(0, 2)),
        st.tuples(st.just("edit"), st.just(0)),
        st.tuples(st.just("delete"), st.just(0)),
    ),
    max_size=80,
)


@given(st.lists(st.floats(-1000, 1000), min_size=3, max_size=3), steps)
def test_two_never_lead_and_nobody_takes_over_while_a_write_may_arrive(
    ahead: list[float], drawn: list[tuple[str, float]]
) -> None:
    races = Races([each + 2000 for each in ahead])
    for step, value in drawn:
        if step == "pass":
            races.now += value
        elif step == "move":
            races.move(int(value))
        elif step == "arrive":
            races.arrive(int(value))
        elif step == "late" and races.late:
            # Long after its sender gave it up.
            each = races.late.pop(int(value) % len(races.late))
            races.under_way.append(each)
            races.arrive(len([one for one in races.under_way if not one.arrived]) - 1)
            races.under_way.remove(each)
        elif step == "answer":
            races.answer(int(value), heard=True)
        elif step == "lose":
            races.answer(int(value), heard=False)
        elif step == "edit" and races.store.record.version:
            races.store.put(races.store.record)
        elif step == "delete":
            races.store.record = NOBODY
        elif step == "round":
            races.move(int(value))
            while any(not each.arrived for each in races.under_way):
                races.arrive(0)
            while races.under_way:
                races.answer(0, heard=True)
        races.check()


def test_where_no_record_can_be_made_it_is_not_tried_in_circles() -> None:
    """As where there is no such namespace: there is no record, and each write of one is refused."""
    election, now, asked = Election("a", "", TERMS), 10.0, 0
    while now < 10.0 + 3 * TERMS.lease:
        act = election.next(now)
        if act is Act.LOOK:
            election.saw(NOBODY, now)
        elif act is Act.WRITE:
            election.sending(election.wanted(), now)
            election.refused(now)
        asked += act is not Act.REST
        now += 0.001
    assert asked < 3 * TERMS.lease / TERMS.look_every * 2 + 2
