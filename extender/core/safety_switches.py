"""The brake: which of the acts that touch what is not ours are allowed, everywhere and namespace by namespace.

    observe_only --- nothing below is done: it is decided and told, no more
    EVICT_PART ----- members of a gang that is known to be bound in part are evicted
    PREEMPT -------- pods of lower priority are evicted for a gang
    SAVE_ROOM ------ what comes free is kept for the gang whose turn it is
    REFUSE --------- filter and bind say no, or wait, for a gang's sake or an ephemeral resource's

While what narrows what may be done cannot be read, nothing is evicted (`uncertain`). A namespace's labels can hold the
brake where the settings do not; they never loosen it. What a label says that is neither of its two words holds the
brake too. Knows the switches and nothing else: who consults them does so at the one place where the act would be
decided, and tells with `Withheld` what would have been done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum

from extender.core.names import GangKey


class Act(Enum):
    """What can be held back. The value is its name for people: in metrics, in the journal, over HTTP."""

    EVICT_PART = "evict-parts"
    PREEMPT = "preempt"
    SAVE_ROOM = "save-room"
    REFUSE = "refuse"


OBSERVE_LABEL = "escher.dev/observe-only"
LABELS: Mapping[Act, str] = {act: f"escher.dev/{act.value}" for act in Act if act is not Act.REFUSE}
"""Labels of a namespace that switch one act off there: `off` or `on`."""


@dataclass(frozen=True, slots=True)
class Switches:
    """What is switched on, in one place. Refusing has no switch of its own: to refuse nothing is to observe only."""

    observe_only: bool = False
    evicts_parts: bool = True
    preempts_for_gangs: bool = True
    saves_room: bool = True

    def allows(self, act: Act) -> bool:
        if self.observe_only:
            return False
        match act:
            case Act.EVICT_PART:
                return self.evicts_parts
            case Act.PREEMPT:
                return self.preempts_for_gangs
            case Act.SAVE_ROOM:
                return self.saves_room
            case Act.REFUSE:
                return True

    def both(self, other: Switches) -> Switches:
        """Only what both allow."""
        return Switches(
            observe_only=self.observe_only or other.observe_only,
            evicts_parts=self.evicts_parts and other.evicts_parts,
            preempts_for_gangs=self.preempts_for_gangs and other.preempts_for_gangs,
            saves_room=self.saves_room and other.saves_room,
        )

    def off(self) -> list[str]:
        """The switches that are not as they are by default, by their names."""
        return [each.name for each in fields(self) if getattr(self, each.name) != each.default]


FREE = Switches()


def switches_of(labels: Mapping[str, str]) -> tuple[Switches, list[str]]:
    """What a namespace's labels switch, and which of them say neither of their two words: these hold the brake."""
    unclear = [
        f"{label}={labels[label]}"
        for label, words in [(OBSERVE_LABEL, ("true", "false")), *((label, ("on", "off")) for label in LABELS.values())]
        if label in labels and labels[label] not in words
    ]
    on = {act: labels.get(label, "on") == "on" for act, label in LABELS.items()}
    switches = Switches(
        observe_only=labels.get(OBSERVE_LABEL, "false") != "false",
        evicts_parts=on[Act.EVICT_PART],
        preempts_for_gangs=on[Act.PREEMPT],
        saves_room=on[Act.SAVE_ROOM],
    )
    return switches, unclear


class SafetySwitches:
    """The switches in force. `version` is another after each change."""

    def __init__(self, everywhere: Switches = FREE) -> None:
        self.everywhere = everywhere
        self.version = 0
        self.uncertain = False
        """Whether labels and policies may say otherwise by now than is known: nothing is evicted then."""
        self._labelled: dict[str, Switches] = {}

    @property
    def labelled(self) -> Mapping[str, Switches]:
        """What labels switch, of the namespaces where they do."""
        return self._labelled

    def allows(self, act: Act, namespace: str) -> bool:
        """Whether the act may be done to, or for, what is in the namespace."""
        if self.uncertain and act in (Act.EVICT_PART, Act.PREEMPT):
            return False
        if not self.everywhere.allows(act):
            return False
        return not self._labelled or self._labelled.get(namespace, FREE).allows(act)

    def protects(self, namespace: str) -> bool:
        """Whether the namespace's labels keep its pods from being evicted for a gang of any namespace."""
        return self.uncertain or not self._labelled.get(namespace, FREE).allows(Act.PREEMPT)

    def observes(self, namespace: str) -> bool:
        """Whether nothing at all may be done there."""
        return not self.allows(Act.REFUSE, namespace)

    def set_everywhere(self, switches: Switches) -> bool:
        """The settings say so now. Whether that is news."""
        if switches == self.everywhere:
            return False
        self.everywhere = switches
        self.version += 1
        return True

    def set_uncertain(self, uncertain: bool) -> bool:
        """Whether that is news."""
        if uncertain == self.uncertain:
            return False
        self.uncertain = uncertain
        self.version += 1
        return True

    def set_labelled(self, namespace: str, switches: Switches) -> bool:
        """The namespace's labels say so now. Whether that is news."""
        if switches == self._labelled.get(namespace, FREE):
            return False
        if switches == FREE:
            del self._labelled[namespace]
        else:
            self._labelled[namespace] = switches
        self.version += 1
        return True


@dataclass(frozen=True, slots=True)
class Withheld:
    """Event: the act would have been done now, and the brake holds it. `about`: to whom, in a few words."""

    act: Act
    namespace: str
    gang: GangKey | None = None
    about: tuple[str, ...] = ()
