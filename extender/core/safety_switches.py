"""Safety switches: which acts on foreign objects Escher may perform, everywhere and by namespace.

    observe_only --- none of the acts below is done: decisions are only reported;
    EVICT_PART ----- members of a gang that is known to be bound in part are evicted;
    PREEMPT -------- pods of lower priority are evicted for a gang;
    SAVE_ROOM ------ room that comes free is kept for the first gang in the queue;
    REFUSE --------- filter and bind refuse, or wait, for a gang or an ephemeral resource.

While restrictions cannot be read, nothing is evicted (`uncertain`). A namespace's labels can forbid an act that the
settings allow, never the reverse. A label with neither of its two words forbids the act too. The caller consults the
switches at the one place where it decides an act, and reports a forbidden one with `Withheld`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum

from extender.core.names import GangKey


class Act(Enum):
    """What can be forbidden. The value is its name for people: in metrics, journal and HTTP."""

    EVICT_PART = "evict-parts"
    PREEMPT = "preempt"
    SAVE_ROOM = "save-room"
    REFUSE = "refuse"


OBSERVE_LABEL = "escher.dev/observe-only"
LABELS: Mapping[Act, str] = {act: f"escher.dev/{act.value}" for act in Act if act is not Act.REFUSE}
"""Labels of a namespace that switch one act off there: `off` or `on`."""


@dataclass(frozen=True, slots=True)
class Switches:
    """The switches of one scope. REFUSE has no own switch: to refuse nothing is observe_only."""

    observe_only: bool = False
    evict_partial_gangs: bool = True
    gang_preemption: bool = True
    backfill_reservation: bool = True

    def allows(self, act: Act) -> bool:
        if self.observe_only:
            return False
        match act:
            case Act.EVICT_PART:
                return self.evict_partial_gangs
            case Act.PREEMPT:
                return self.gang_preemption
            case Act.SAVE_ROOM:
                return self.backfill_reservation
            case Act.REFUSE:
                return True

    def both(self, other: Switches) -> Switches:
        """Allows only what both allow."""
        return Switches(
            observe_only=self.observe_only or other.observe_only,
            evict_partial_gangs=self.evict_partial_gangs and other.evict_partial_gangs,
            gang_preemption=self.gang_preemption and other.gang_preemption,
            backfill_reservation=self.backfill_reservation and other.backfill_reservation,
        )

    def off(self) -> list[str]:
        """The names of the switches that differ from their defaults."""
        return [each.name for each in fields(self) if getattr(self, each.name) != each.default]


FREE = Switches()


def switches_of(labels: Mapping[str, str]) -> tuple[Switches, list[str]]:
    """The switches from a namespace's labels, and unclear labels, which forbid their acts."""
    unclear = [
        f"{label}={labels[label]}"
        for label, words in [(OBSERVE_LABEL, ("true", "false")), *((label, ("on", "off")) for label in LABELS.values())]
        if label in labels and labels[label] not in words
    ]
    on = {act: labels.get(label, "on") == "on" for act, label in LABELS.items()}
    switches = Switches(
        observe_only=labels.get(OBSERVE_LABEL, "false") != "false",
        evict_partial_gangs=on[Act.EVICT_PART],
        gang_preemption=on[Act.PREEMPT],
        backfill_reservation=on[Act.SAVE_ROOM],
    )
    return switches, unclear


class SafetySwitches:
    """The switches in force. `version` changes with each change."""

    def __init__(self, everywhere: Switches = FREE) -> None:
        self.everywhere = everywhere
        self.version = 0
        self.uncertain = False
        """Whether known labels and policies may be outdated: then nothing is evicted."""
        self._labelled: dict[str, Switches] = {}

    @property
    def labelled(self) -> Mapping[str, Switches]:
        """The switches of namespaces whose labels forbid an act."""
        return self._labelled

    def allows(self, act: Act, namespace: str) -> bool:
        """Whether the act is allowed on, or for, objects of the namespace."""
        if self.uncertain and act in (Act.EVICT_PART, Act.PREEMPT):
            return False
        if not self.everywhere.allows(act):
            return False
        return not self._labelled or self._labelled.get(namespace, FREE).allows(act)

    def protects(self, namespace: str) -> bool:
        """Whether the namespace's labels protect its pods from eviction for a gang anywhere."""
        return self.uncertain or not self._labelled.get(namespace, FREE).allows(Act.PREEMPT)

    def observes(self, namespace: str) -> bool:
        """Whether no act is allowed there."""
        return not self.allows(Act.REFUSE, namespace)

    def set_everywhere(self, switches: Switches) -> bool:
        """Applies the settings. Returns whether they changed."""
        if switches == self.everywhere:
            return False
        self.everywhere = switches
        self.version += 1
        return True

    def set_uncertain(self, uncertain: bool) -> bool:
        """Returns whether the value changed."""
        if uncertain == self.uncertain:
            return False
        self.uncertain = uncertain
        self.version += 1
        return True

    def set_labelled(self, namespace: str, switches: Switches) -> bool:
        """Applies the namespace's labels. Returns whether they changed."""
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
    """Event: a safety switch prevented an act that was due. `about`: its objects, in short."""

    act: Act
    namespace: str
    gang: GangKey | None = None
    about: tuple[str, ...] = ()
