"""Election: which replica may decide, by one record that a replica changes only if no other has.

    following --taken--> leading --permit ran out, or the record names another--> lost

The caller reports the API server's answers, with the times of request and answer, and gets the next action. Times are
the caller's own, of a clock that only advances. Times in the record are not read, because clocks may differ. The holder
counts its lease from *before* it sent its renewal, all others from after they saw the record change. So the holder's
time ends before another's begins. A write may begin only if it surely ends within that time:

    renewal sent          last write may begin      surely ended    margin      others may take it
         |------------------------|----------- request ---|-----------|-------------------|
         |<------------------------------- lease ------------------------->|

A holder is alive while `renewal`, its own count of its writes, changes: a foreign change of the record renews nothing.
No field of the record makes a candidate wait longer than LONGEST_LEASE after that. If the record names a candidate that
did not write it, that candidate waits as for any other holder, because another may still lead.

`lost` is final: the former leader ends its process and restarts without state.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

LONGEST_LEASE = 60
"""Seconds: the longest lease in any replica's settings. No replica writes a longer one."""

MOST_TRANSITIONS = 2**31 - 1
"""The API server stores no greater number: the count stays there."""

MOST_IN_VAIN = 5


@dataclass(frozen=True, slots=True)
class Terms:
    """Times in seconds. `request`: longest write. `margin`: clock drift within a lease, at most."""

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
        """The usual terms for a lease of that number of seconds."""
        return cls(lease, renew_every=lease / 8, look_every=lease / 16, request=lease / 4, margin=lease / 8)

    @property
    def permit(self) -> float:
        """How long after a renewal was sent a write may begin."""
        return self.lease - self.request - self.margin


@dataclass(frozen=True, slots=True)
class Record:
    """The content of the record. `version`: empty if there is none.

    `seconds`: how long it holds after each change. `at`: the holder's address. `renewal`: the holder's number of this
    write. `in_vain`: how many leaders in a row gave it back because they could not work.
    """

    holder: str = ""
    at: str = ""
    seconds: int = 0
    transitions: int = 0
    renewal: int = 0
    version: str = ""
    in_vain: int = 0

    @property
    def given_back(self) -> bool:
        """Whether the holder has resigned in writing. An empty `holder` alone does not say so."""
        return self.version != "" and (self.holder, self.at, self.seconds, self.renewal) == ("", "", 1, 0)

    @property
    def life(self) -> tuple[str, int, bool]:
        """A value that changes with each write of the holder, whatever others write."""
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
    """One candidate. `me` is unique, also among this replica's earlier processes."""

    def __init__(self, me: str, at: str, terms: Terms) -> None:
        self.me = me
        self.terms = terms
        self.record = NOBODY
        self.due = 0.0
        self.works = False
        """Whether this candidate has led for long enough to know that it can work."""
        self._at = at
        self._standing = Standing.FOLLOWING
        self._knows = False
        """Whether `record` is, as far as is known, what the last read found."""
        self._changed = 0.0
        """When the record's holder was last seen to have written."""
        self._held = 0
        """The count of changes in the last record that named a holder."""
        self._sent: float | None = None
        """When the candidate's last write that is known to have succeeded was sent."""
        self._renewals = 0
        self._unanswered: dict[int, float] = {}
        """Unanswered writes: number and time sent. All replace `record`: at most one succeeds."""

    def standing(self, now: float) -> Standing:
        if self._standing is Standing.LEADING and not self._is_permitted(now):
            self._standing = Standing.LOST
        return self._standing

    @property
    def until(self) -> float:
        """When the leader's time runs out, unless the record is renewed before."""
        return (self._sent or 0.0) + self.terms.permit

    def leads(self, now: float) -> bool:
        """Whether a decision or a write may begin. Changes nothing: any thread may call it."""
        return self._standing is Standing.LEADING and self._is_permitted(now)

    def next(self, now: float) -> Act:
        """The action to take now."""
        if self.standing(now) is Standing.LOST:
            self.due = now + self.terms.look_every
            return Act.REST
        if self._knows and self._may_write(now):
            return Act.WRITE
        if self._standing is Standing.LEADING and self._knows:
            return Act.REST
        return Act.LOOK if now >= self.due else Act.REST

    def wanted(self) -> Record:
        """The record with this candidate as its holder."""
        changes_hands = self.record.holder != self.me
        transitions = min(self.record.transitions + (changes_hands and self.record.version != ""), MOST_TRANSITIONS)
        self._renewals += 1
        version, in_vain = self.record.version, self._in_vain()
        return Record(self.me, self._at, self.terms.lease, transitions, self._renewals, version, in_vain)

    def released(self, *, in_vain: bool = False) -> Record:
        """The record without a holder. `in_vain`: this leader could not work."""
        count = min(self._in_vain() + in_vain, MOST_IN_VAIN)
        return replace(self.record, holder="", at="", seconds=1, renewal=0, in_vain=count)

    def _in_vain(self) -> int:
        return 0 if self.works else self.record.in_vain

    def sending(self, wanted: Record, now: float) -> None:
        """This write is about to be sent."""
        self._unanswered[wanted.renewal] = now

    def wrote(self, record: Record, sent: float, now: float) -> None:
        """The write sent at `sent` succeeded, as `record`."""
        self._unanswered.clear()
        self._take_as(record, now)
        self._holds_from(sent, now)

    def refused(self, now: float) -> None:
        """The record has changed or is gone: its known content is obsolete."""
        self._knows = False
        # If there was no record, perhaps none can be created either.
        self.due = now if self.record.version else now + self.terms.look_every

    def unheard(self, now: float) -> None:
        """No answer came: the request may have succeeded or not."""
        self._knows = self._knows and self._standing is Standing.LEADING
        self.due = now + self.terms.look_every

    def saw(self, record: Record, now: float) -> None:
        """The record was read in this state."""
        changed = record.version != self.record.version
        self._take_as(record, now)
        self.due = now + self.terms.look_every
        if changed:
            sent = self._unanswered.get(record.renewal) if record.holder == self.me else None
            # Any other pending write of this candidate fails, because the version has changed.
            self._unanswered.clear()
            if sent is not None:
                self._holds_from(sent, now)
        if record.holder != self.me and self._standing is Standing.LEADING:
            self._standing = Standing.LOST

    def resign(self) -> None:
        """This candidate no longer leads, whatever the record says."""
        self._standing = Standing.LOST

    def _may_write(self, now: float) -> bool:
        if self.record.holder == self.me and self._standing is Standing.LEADING:
            assert self._sent is not None
            # A write without an answer is not repeated at once.
            self.due = max(self._sent + self.terms.renew_every, self.due)
            return now >= self.due
        if self.record.given_back and self.record.transitions >= self._held:
            # A record with fewer changes was restored from a backup: a later leader may still lead.
            return True
        # If there is no record, or it names this candidate or none, a person may have changed it while a leader leads.
        runs_out = self._changed + max(self.terms.lease, min(self.record.seconds, LONGEST_LEASE))
        if now < runs_out:
            self.due = min(self.due, runs_out)
        return now >= runs_out

    def _take_as(self, record: Record, now: float) -> None:
        if record.life != self.record.life or not self._changed:
            self._changed = now
        # A holder never changes its lease's duration: another number in its record is not its own.
        known = not record.version or (record.holder == self.record.holder and self.record.version != "")
        record = replace(record, seconds=self.record.seconds) if known else record
        self._held = record.transitions if record.holder else self._held
        self.record, self._knows = record, True

    def _holds_from(self, sent: float, now: float) -> None:
        # A late answer restores no leadership: others may have seen meanwhile that it had ended.
        self.standing(now)
        self._sent = sent
        self.due = sent + self.terms.renew_every
        if self._standing is Standing.FOLLOWING and self._is_permitted(now):
            self._standing = Standing.LEADING

    def _is_permitted(self, now: float) -> bool:
        return self._sent is not None and now < self.until
