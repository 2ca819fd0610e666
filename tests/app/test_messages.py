"""States and numbers as people read them."""

from __future__ import annotations

import pytest

from extender.app.contracts.messages import amount, in_words, number, why_gang_waits
from extender.core.affinity.affinity_rules import TOO_MANY
from extender.core.gangs.placement.affinity_packing import TOO_LARGE
from extender.core.gangs.state.bin_packing import Shortfall
from extender.core.gangs.state.gang import Gang
from extender.core.gangs.state.state_machine import Phase
from extender.core.ledger.units import Short
from extender.core.names import GangKey
from extender.kube.names import CPU, MEMORY, PODS, ResourceKey
from tests.builders import gang_pods

R = ResourceKey("escher.dev/team.r")


@pytest.mark.parametrize(
    ("resource", "units", "said"),
    [
        (CPU, 1500, "1.5"),
        (CPU, 2000, "2"),
        (MEMORY, 1023, "1023"),
        (MEMORY, 2**10, "1 KiB"),
        (MEMORY, 2**20 - 2**10, "1023 KiB"),
        (MEMORY, 2**20, "1 MiB"),
        (MEMORY, 2**30 - 2**20, "1023 MiB"),
        (MEMORY, 2**30, "1 GiB"),
        (MEMORY, 2**40 - 2**30, "1023 GiB"),
        (MEMORY, 2**40, "1 TiB"),
        (MEMORY, 5 * 2**40, "5 TiB"),
        (MEMORY, -(2**30), "-1 GiB"),
        (MEMORY, 2**30 + 2**20, "1 GiB"),
        (MEMORY, 2**30 + 2**28 + 2**22, "1.25 GiB"),
        (R, 3, "3"),
    ],
)
def test_units_are_cores_or_bytes_in_the_largest_unit_that_leaves_no_long_fraction(
    resource: ResourceKey, units: int, said: str
) -> None:
    assert number(resource, units) == said


def test_an_amount_names_its_resource() -> None:
    assert [amount(CPU, 1500), amount(MEMORY, 2**34), amount(R, 3)] == ["1.5 cpu", "16 GiB memory", f"3 of {R}"]


def test_why_no_plan_was_found() -> None:
    assert in_words(Shortfall(1, 3, None)) == "1 of 3 members fit; no other node accepts a member"
    assert in_words(Shortfall(0, 200, None, TOO_MANY)) == (
        "0 of 200 members fit; its members have more than 128 different rules about other pods "
        "(a topology spread counts as 4): give them the same rules"
    )
    assert in_words(Shortfall(1, 3, None, TOO_LARGE, unsure=True)) == (
        "1 of 3 members fit; too many members, nodes and rules for one plan: make more of them alike"
    )
    assert in_words(Shortfall(1, 3, None, "topology spread")) == (
        "1 of 3 members fit; topology spread excludes the next from every node with free capacity"
    )
    assert in_words(Shortfall(1, 3, Short(CPU, 4000, 500))) == (
        "1 of 3 members fit; the next requests 4 cpu, and a node has at most 0.5 free"
    )
    assert in_words(Shortfall(1, 3, Short(CPU, 100, 0), others=(PODS,))) == (
        "1 of 3 members fit; the next requests 0.1 cpu; some nodes have at most 0 free, others lack pods"
    )


def waiting(existing: int, quorum: int) -> Gang:
    made = Gang(GangKey("default", "train"), quorum, 4.0, 0.0)
    for member in gang_pods("train", existing, quorum=quorum):
        made.roster.take(member)
    made.terms = made.terms.as_asked_by(made.roster)
    return made


@pytest.mark.parametrize(("missing", "said"), [(1, "1 of the 3 members"), (2, "2 of the 3 members")])
def test_members_that_are_missing_are_counted(missing: int, said: str) -> None:
    do = "does" if missing == 1 else "do"
    assert why_gang_waits(waiting(3 - missing, 3)) == f"{said} that must be placed together {do} not exist yet"


def test_whether_room_is_saved_is_said_where_it_is_known() -> None:
    gang = waiting(2, 2)
    assert why_gang_waits(gang) == "2 of 2 members have no node yet, and were not tried since the last change"
    gang.wait.shortfall = Shortfall(1, 2, None)
    short = "1 of 2 members fit; no other node accepts a member"
    assert why_gang_waits(gang) == short
    assert why_gang_waits(gang, saved=True) == f"it has a backfill reservation for capacity that becomes free: {short}"


def test_whether_room_is_held_or_only_there_is_said_of_a_plan() -> None:
    gang = waiting(2, 2)
    gang.phase = Phase.PLANNED
    assert why_gang_waits(gang) == "capacity is reserved for all 2; 0 of them are ready to be bound"
    gang.plan.intends = True
    assert why_gang_waits(gang) == (
        "there is capacity, reserved as they arrive, for all 2; 0 of them are ready to be bound"
    )
    gang.phase = Phase.BOUND
    assert why_gang_waits(gang) == ""
