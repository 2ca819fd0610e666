"""Election: which of several replicas may decide, by one record that each of them can change if nobody has meanwhile.

    following --taken--> leading --permit ran out, or the record names another--> lost

Pure: what the API server said comes in with the time at which it was asked or had answered, and what is to be done next
goes out. Times are the caller's own, of a clock that only ever passes; what others write as times is not read, so that
clocks may differ. Who holds the record counts from *before* its renewal was sent, all others from after they saw it
changed: so the holder's time is over before anybody else's begins. A write may begin only while it surely ends within
that time:

    renewal sent          last write may begin      surely ended    margin      others may take it
         |------------------------|----------- request ---|-----------|-------------------|
         |<------------------------------- lease ------------------------->|

A holder is alive as long as its own number of its writes changes: who only touches the record renews nothing. No field
of it, whatever stands there, keeps a candidate waiting for longer than LONGEST_LEASE after that. Where it names a
candidate that has not written so itself, that one waits as for any other holder: another may lead still.

`lost` is for good: whoever was the leader ends its process and comes back as one that knows nothing. Must not know
requests, clocks, names of anything.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

LONGEST_LEASE = 60
"""Seconds: no replica's settings can have a longer one. What a record says beyond that, no replica has written."""

MOST_TRANSITIONS = 2**31 - 1
"""The API server stores no greater number: the count stays there."""

MOST_IN_VAIN = 5


@dataclass(frozen=True, slots=True)
class Terms:
    """All in seconds. `request`: what a write of the leader takes at most. `margin`: by how much clocks may pass
    differently within a lease."""

    lease: int
    renew_every: float
    look_every: float
    request: float
    margin: float

    def __post_init__(self) -> None:
        if not 0 < self.look_every <= self.renew_every < self.permit:
            raise ValueError(f"a lease of {self.lease} s leaves no time to renew it: {self}")

    @classmethod
    def of(cls, lease: int) -> Terms:
        """The usual ones for a lease of so many seconds."""
        return cls(lease, renew_every=lease / 8, look_every=lease / 16, request=lease / 4, margin=lease / 8)

    @property
    def permit(self) -> float:
        """For how long after a renewal was sent a write may begin."""
        return self.lease - self.request - self.margin


@dataclass(frozen=True, slots=True)
class Record:
    """What is written for all to see. `version`: empty where there is no record; `seconds`: how long it holds after
    each change; `at`: where its holder can be asked; `renewal`: the holder's own number of this write; `in_vain`: how
    many leaders in a row have given it back because they could not work."""

    holder: str = ""
    at: str = ""
    seconds: int = 0
    transitions: int = 0
    renewal: int = 0
    version: str = ""
    in_vain: int = 0

    @property
    def given_back(self) -> bool:
        """Whether its holder has written that it leads no more. An emptied `holder` alone does not say so."""
        return self.version != "" and (self.holder, self.at, self.seconds, self.renewal) == ("", "", 1, 0)

    @property
    def life(self) -> tuple[str, int, bool]:
        """What is another after each write of its holder's, whatever others write."""
        return self.holder, self.renewal, self.version != ""


NOBODY = Record()


class Standing(Enum):
    FOLLOWING = "following"
    LEADING = "leading"
    LOST = "lost"


class Act(Enum):
    LOOK = "look"
    """Read the record."""
    WRITE = "write"
    """Write `Election.wanted()` in the place of `Election.record`, if that has not changed."""
    REST = "rest"
    """Do nothing until `Election.due`."""


class Election:
    """One candidate. `me` is nobody else's, nor that of an earlier life of ours."""

    def __init__(self, me: str, at: str, terms: Terms) -> None:
        self.me = me
        self.terms = terms
        self.record = NOBODY
        self.due = 0.0
        self.works = False
        """Whether we have led for long enough to know that we can work."""
        self._at = at
        self._standing = Standing.FOLLOWING
        self._knows = False
        """Whether `record` is what was there when it was last looked at, as far as we know."""
        self._changed = 0.0
        """When the record's holder was last seen to have written."""
        self._held = 0
        """The count of changes in the last record that named a holder."""
        self._sent: float | None = None
        """When our last write was sent of which it is known that it came to be."""
        self._renewals = 0
        self._unanswered: dict[int, float] = {}
        """When those of our writes were sent of which it is not known what became of them, by their numbers. All are
        on top of `record`, so that one of them at most comes to be."""

    def standing(self, now: float) -> Standing:
        if self._standing is Standing.LEADING and not self._is_permitted(now):
            self._standing = Standing.LOST
        return self._standing

    @property
    def until(self) -> float:
        """When the time of who leads runs out, unless the record is renewed before."""
        return (self._sent or 0.0) + self.terms.permit

    def leads(self, now: float) -> bool:
        """Whether a decision may be made, and a write begin. Changes nothing, so that any thread may ask."""
        return self._standing is Standing.LEADING and self._is_permitted(now)

    def next(self, now: float) -> Act:
        """What is to be done now."""
        if self.standing(now) is Standing.LOST:
            self.due = now + self.terms.look_every
            return Act.REST
        if self._knows and self._may_write(now):
            return Act.WRITE
        if self._standing is Standing.LEADING and self._knows:
            return Act.REST
        return Act.LOOK if now >= self.due else Act.REST

    def wanted(self) -> Record:
        """The record, with us as its holder."""
        changes_hands = self.record.holder != self.me
        transitions = min(self.record.transitions + (changes_hands and self.record.version != ""), MOST_TRANSITIONS)
        self._renewals += 1
        version, in_vain = self.record.version, self._in_vain()
        return Record(self.me, self._at, self.terms.lease, transitions, self._renewals, version, in_vain)

    def released(self, *, in_vain: bool = False) -> Record:
        """The record, with nobody as its holder. `in_vain`: for we could not work."""
        count = min(self._in_vain() + in_vain, MOST_IN_VAIN)
        return replace(self.record, holder="", at="", seconds=1, renewal=0, in_vain=count)

    def _in_vain(self) -> int:
        return 0 if self.works else self.record.in_vain

    def sending(self, wanted: Record, now: float) -> None:
        """This write is about to be sent."""
        self._unanswered[wanted.renewal] = now

    def wrote(self, record: Record, sent: float, now: float) -> None:
        """The write that was sent then came to be, as `record`."""
        self._unanswered.clear()
        self._take_as(record, now)
        self._holds_from(sent, now)

    def refused(self, now: float) -> None:
        """The record has changed, or went: what it was says nothing any more."""
        self._knows = False
        # Where there was none, there may be no place for one either.
        self.due = now if self.record.version else now + self.terms.look_every

    def unheard(self, now: float) -> None:
        """Nobody answered: what was asked for may have come to be or not."""
        self._knows = self._knows and self._standing is Standing.LEADING
        self.due = now + self.terms.look_every

    def saw(self, record: Record, now: float) -> None:
        """The record was read, and is this."""
        changed = record.version != self.record.version
        self._take_as(record, now)
        self.due = now + self.terms.look_every
        if changed:
            sent = self._unanswered.get(record.renewal) if record.holder == self.me else None
            # Whatever else of ours is still under way meets another version there.
            self._unanswered.clear()
            if sent is not None:
                self._holds_from(sent, now)
        if record.holder != self.me and self._standing is Standing.LEADING:
            self._standing = Standing.LOST

    def resign(self) -> None:
        """We lead no more, whatever the record says."""
        self._standing = Standing.LOST

    def _may_write(self, now: float) -> bool:
        if self.record.holder == self.me and self._standing is Standing.LEADING:
            assert self._sent is not None
            # One that nobody answered is not tried again at once.
            self.due = max(self._sent + self.terms.renew_every, self.due)
            return now >= self.due
        if self.record.given_back and self.record.transitions >= self._held:
            # One with fewer changes was restored from a backup: who has led since may lead still.
            return True
        # Where there is none, or it names us or nobody, a hand may have taken it from one that leads still.
        runs_out = self._changed + max(self.terms.lease, min(self.record.seconds, LONGEST_LEASE))
        if now < runs_out:
            self.due = min(self.due, runs_out)
        return now >= runs_out

    def _take_as(self, record: Record, now: float) -> None:
        if record.life != self.record.life or not self._changed:
            self._changed = now
        # A holder never changes how long its lease holds: another number in its record is not its own.
        known = not record.version or (record.holder == self.record.holder and self.record.version != "")
        record = replace(record, seconds=self.record.seconds) if known else record
        self._held = record.transitions if record.holder else self._held
        self.record, self._knows = record, True

    def _holds_from(self, sent: float, now: float) -> None:
        # An answer that comes too late raises nobody again: others may have seen meanwhile that we lead no more.
        self.standing(now)
        self._sent = sent
        self.due = sent + self.terms.renew_every
        if self._standing is Standing.FOLLOWING and self._is_permitted(now):
            self._standing = Standing.LEADING

    def _is_permitted(self, now: float) -> bool:
        return self._sent is not None and now < self.until
