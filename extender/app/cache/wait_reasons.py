"""Wait reasons: why pods and gangs wait, since when, and whether that is news.

People are told once for each change of reason. A reason is the same if only its numbers differ. One that comes and goes
is told again after ten minutes at the earliest. So however often kube-scheduler tries a pod, in ten minutes people are
told at most once for each of its reasons. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter

from extender.app.contracts.effects import WaitTold
from extender.app.contracts.extender_api import Verdict
from extender.app.contracts.messages import in_words
from extender.core.cluster import Pod
from extender.core.common.bounded import Bounded
from extender.core.gang_of_one import WAITS, called, lone_pod
from extender.core.gangs.state.gang import NO_ROOM, GangPlanned, GangTurnedAway
from extender.core.names import GangKey
from extender.kube.names import PodUid

TOLD_AGAIN_AFTER = 600.0
_REMEMBERED = 16_384
_REASONS_TOLD = 3

Named = Callable[[GangKey], str]
Reason = Hashable
"""What stays the same while numbers change."""


@dataclass(slots=True)
class _Waiting:
    reasons: frozenset[Reason] = frozenset()
    since: float = 0.0
    told: frozenset[Reason] = frozenset()
    """The reasons that people were told last."""
    told_at: dict[Reason, float] = field(default_factory=dict)


class WaitReasons:
    def __init__(self) -> None:
        self._waiting: Bounded[PodUid | GangKey, _Waiting] = Bounded(_REMEMBERED)
        self._told_for: Bounded[PodUid, GangKey] = Bounded(_REMEMBERED)
        """Members about which people were told, and their gangs."""

    def since(self, subject: PodUid | GangKey) -> float | None:
        """Since when it waits for its last reasons, in steady seconds; None: it was not refused."""
        known = self._waiting.get(subject)
        return None if known is None or not known.reasons else known.since

    def all_since(self) -> dict[PodUid | GangKey, float]:
        """The same for all that were refused."""
        return {subject: each.since for subject, each in self._waiting.items() if each.reasons}

    def resume(self, since: Mapping[PodUid | GangKey, float]) -> None:
        """They have waited since then, for reasons that are not known any more."""
        for subject, began in since.items():
            self._waiting[subject] = _Waiting(frozenset({None}), began)

    def turned_away(self, subject: PodUid | GangKey, reasons: Collection[Reason], now: float) -> bool:
        """It waits for these reasons; returns whether people are to be told.

        A part of the reasons that were told last is no news: kube-scheduler sends other nodes each time, and not each
        has all of them."""
        found = frozenset(reasons)
        if (known := self._waiting.get(subject)) is None:
            known = self._waiting[subject] = _Waiting()
        if not found <= known.reasons:
            known.reasons, known.since = found, now
        new = [
            each for each in found - known.told if now - known.told_at.get(each, -TOLD_AGAIN_AFTER) >= TOLD_AGAIN_AFTER
        ]
        if found <= known.told or not new:
            return False
        known.told = found
        known.told_at = {each: at for each, at in known.told_at.items() if now - at < TOLD_AGAIN_AFTER}
        known.told_at |= dict.fromkeys(found, now)
        return True

    def passed(self, subject: PodUid | GangKey) -> None:
        """It waits for none of them any more. If the attempt fails, the same are no news."""
        if subject in self._waiting:
            self._waiting[subject].reasons = frozenset()

    def forget(self, uid: PodUid) -> None:
        """The pod is gone, and with it what people can read about it."""
        self._waiting.pop(uid, None)
        if (gang := self._told_for.pop(uid, None)) is not None:
            self._waiting.pop(gang, None)

    # -- what people are told ------------------------------------------------------------------------------------

    def of_pod(self, pod: Pod, verdict: Verdict, now: float) -> WaitTold | None:
        """The note on a pod that policies match and refused on every node; None: no news."""
        if not self.turned_away(pod.uid, {*verdict.rejected.values(), *verdict.unresolvable.values()}, now):
            return None
        counted = Counter((*verdict.rejected.values(), *verdict.unresolvable.values()))
        most = sorted(counted.items(), key=lambda each: (-each[1], each[0]))[:_REASONS_TOLD]
        note = "; ".join(f"{reason} ({number} of {counted.total()} nodes)" for reason, number in most)
        return WaitTold(pod, None, note)

    def of_gang(self, effect: object, now: float, named: Named = attrgetter("name")) -> WaitTold | None:
        """What the effect says of a waiting gang; None: no news. `named`: the gang's name."""
        match effect:
            case GangPlanned(key):
                self.passed(key)
            case GangTurnedAway(key, member, reason, shortfall):
                if self.turned_away(key, (effect.why,), now):
                    self._told_for[member.uid] = key
                    alone = bool(lone_pod(key))
                    words = "" if shortfall is None else in_words(shortfall, member.governed, alone=alone)
                    detail = f": {words}" if words else ""
                    said = WAITS if alone and reason == NO_ROOM else reason
                    return WaitTold(member, key, f"{called(key, named(key))}: {said}{detail}")
            case _:
                pass
        return None
