"""The phases of a gang, as two literal tables: which phase follows each step.

`gangs` says what has happened; the tables say which phase follows. NEVER marks a defect of Escher: `after` raises
Impossible, and `gangs` sets that one gang aside.

                    enough members exist,          the last of the quorum
     first member   but no room                    arrives at the barrier      all Bindings written
    ---> GATHERING -----------------> WAITING  +---> BINDING --------------------------> BOUND
           ^   |                       |   ^   |      |   ^                                |
           |   |  the quorum is        |   |   |      v   |  the rest follows              |  members leave,
           |   +--> reserved  <--------+   |   |     IN_PART                               |  fewer than the quorum
           |          PLANNED -------------|---+      |                                    |
           |             |  given up       |          |  given up                          |
           +-------------+-----------------+----------+------------------------------------+

In GATHERING and WAITING a gang holds only its bound members and its backfill reservation (`queue`). In PLANNED it holds
its whole quorum, or only the members at its barrier if nothing is reserved at filter. IN_PART: its Bindings have been
tried, and some of the quorum are not bound; their room is held. QUARANTINED: the gang could not be handled. It is left
as it is until its last member is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class Impossible(Exception):
    """The step cannot happen in this phase."""


class Phase(Enum):
    GATHERING = "gathering"
    WAITING = "waiting"
    PLANNED = "planned"
    BINDING = "binding"
    IN_PART = "in-part"
    BOUND = "bound"
    QUARANTINED = "quarantined"


class Step(Enum):
    """What happens to a gang."""

    LACKS_MEMBERS = "members of its quorum do not exist"
    HAS_MEMBERS = "its quorum exists"
    PLAN_MADE = "each member of its quorum has a place"
    GIVEN_UP = "what was held for it is free again"
    BARRIER_OPENED = "Bindings are being written"
    HALTED = "no Binding is being written, and only a part of the quorum is bound"
    QUORUM_BOUND = "its quorum is bound"
    QUORUM_LOST = "fewer members than its quorum are bound, and fewer than before"
    DEFECT = "Escher could not handle it"


NEVER = None

PHASES: Mapping[Phase, Mapping[Step, Phase | None]] = {
    Phase.GATHERING: {
        Step.LACKS_MEMBERS: Phase.GATHERING,
        Step.HAS_MEMBERS: Phase.WAITING,
        Step.PLAN_MADE: Phase.PLANNED,
        Step.GIVEN_UP: Phase.WAITING,
        Step.BARRIER_OPENED: NEVER,
        Step.HALTED: NEVER,
        Step.QUORUM_BOUND: Phase.BOUND,
        Step.QUORUM_LOST: NEVER,
        Step.DEFECT: Phase.QUARANTINED,
    },
    Phase.WAITING: {
        Step.LACKS_MEMBERS: Phase.GATHERING,
        Step.HAS_MEMBERS: Phase.WAITING,
        Step.PLAN_MADE: Phase.PLANNED,
        Step.GIVEN_UP: Phase.WAITING,
        Step.BARRIER_OPENED: NEVER,
        Step.HALTED: NEVER,
        Step.QUORUM_BOUND: Phase.BOUND,
        Step.QUORUM_LOST: NEVER,
        Step.DEFECT: Phase.QUARANTINED,
    },
    Phase.PLANNED: {
        # The plan's places for members that are gone are kept for other members.
        Step.LACKS_MEMBERS: Phase.PLANNED,
        Step.HAS_MEMBERS: Phase.PLANNED,
        Step.PLAN_MADE: NEVER,
        Step.GIVEN_UP: Phase.WAITING,
        Step.BARRIER_OPENED: Phase.BINDING,
        Step.HALTED: NEVER,
        # Another component has bound them.
        Step.QUORUM_BOUND: Phase.BOUND,
        Step.QUORUM_LOST: NEVER,
        Step.DEFECT: Phase.QUARANTINED,
    },
    Phase.BINDING: {
        Step.LACKS_MEMBERS: Phase.BINDING,
        Step.HAS_MEMBERS: Phase.BINDING,
        Step.PLAN_MADE: NEVER,
        Step.GIVEN_UP: Phase.WAITING,
        # Elastic members, or members that come late.
        Step.BARRIER_OPENED: Phase.BINDING,
        Step.HALTED: Phase.IN_PART,
        Step.QUORUM_BOUND: Phase.BOUND,
        Step.QUORUM_LOST: NEVER,
        Step.DEFECT: Phase.QUARANTINED,
    },
    Phase.IN_PART: {
        Step.LACKS_MEMBERS: Phase.IN_PART,
        Step.HAS_MEMBERS: Phase.IN_PART,
        # Nothing was held any more for the missing members.
        Step.PLAN_MADE: Phase.PLANNED,
        Step.GIVEN_UP: Phase.WAITING,
        Step.BARRIER_OPENED: Phase.BINDING,
        Step.HALTED: Phase.IN_PART,
        Step.QUORUM_BOUND: Phase.BOUND,
        Step.QUORUM_LOST: NEVER,
        Step.DEFECT: Phase.QUARANTINED,
    },
    Phase.BOUND: {
        Step.LACKS_MEMBERS: Phase.BOUND,
        Step.HAS_MEMBERS: Phase.BOUND,
        Step.PLAN_MADE: NEVER,
        Step.GIVEN_UP: NEVER,
        # Elastic members.
        Step.BARRIER_OPENED: Phase.BINDING,
        Step.HALTED: NEVER,
        Step.QUORUM_BOUND: Phase.BOUND,
        Step.QUORUM_LOST: Phase.WAITING,
        Step.DEFECT: Phase.QUARANTINED,
    },
    Phase.QUARANTINED: dict.fromkeys(Step, Phase.QUARANTINED),
}


def after(phase: Phase, step: Step) -> Phase:
    """The phase that follows. Raises Impossible."""
    following = PHASES[phase][step]
    if following is None:
        raise Impossible(f"a gang that is {phase.value}: {step.value}")
    return following


class Standing(Enum):
    """What the bound members are to each other."""

    FRESH = "none is known to have been bound by Escher together with others"
    TRIED = "Escher bound some together, and it is not known whether the quorum was ever complete"
    RAN = "its quorum has been bound: a member that leaves now leaves a running gang"


class Past(Enum):
    """What changes the standing."""

    TRIED = "Escher writes Bindings for the quorum"
    QUORUM_BOUND = "its quorum is bound"
    NOBODY_LEFT = "no member is placed"


STANDINGS: Mapping[Standing, Mapping[Past, Standing]] = {
    Standing.FRESH: {Past.TRIED: Standing.TRIED, Past.QUORUM_BOUND: Standing.RAN, Past.NOBODY_LEFT: Standing.FRESH},
    Standing.TRIED: {Past.TRIED: Standing.TRIED, Past.QUORUM_BOUND: Standing.RAN, Past.NOBODY_LEFT: Standing.FRESH},
    Standing.RAN: {
        # A pod that joins a running gang does not make the gang partial.
        Past.TRIED: Standing.RAN,
        Past.QUORUM_BOUND: Standing.RAN,
        Past.NOBODY_LEFT: Standing.FRESH,
    },
}
