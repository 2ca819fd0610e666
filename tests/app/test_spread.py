"""Units for many nodes at once, in one write: node by node, as many as the namespace's quota and domain allow."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from extender.app.cache.cache import Rules
from extender.app.contracts.ports import EphemeralResource
from extender.app.cycle.scheduler import Scheduler
from extender.app.objects.known import Entry
from extender.app.resources.capacity import Capacities
from extender.app.resources.set_resource import Resources
from extender.app.resources.set_resource_plan import nodes_of, outcome, spread
from extender.core.cluster import Node
from extender.core.names import EphemeralName
from extender.core.tenancy.isolation import UNLIMITED, Allowance, Counted
from extender.kube.names import NodeName
from tests.app.fakes import ApiServer, LoopClock
from tests.builders import node
from tests.core.gang_world import FixedClock
from tests.performing import Performing, replaced

NAME, OTHER = EphemeralName("team", "a"), EphemeralName("team", "b")
INSIDE = [NodeName(f"n{number}") for number in range(4)]
OUTSIDE = NodeName("outside")
by_node = st.dictionaries(st.sampled_from([*INSIDE, OUTSIDE]), st.integers(1, 4))


def capacities_of(quota: tuple[int, int], objects: Mapping[EphemeralName, EphemeralResource]) -> Capacities:
    """The namespace may have so many resources, and units, beside these objects; what is too much waits."""
    most = dict(zip((Counted.RESOURCES, Counted.UNITS), quota, strict=True))
    scheduler = Scheduler(FixedClock(), Rules(allowances=(UNLIMITED, {"team": Allowance(most, {"pool": ("a",)})})))
    replaced(scheduler, Node, [*(node(name, labels={"pool": "a"}) for name in INSIDE), node(OUTSIDE)])
    resources = Resources(scheduler, Performing(), ApiServer(LoopClock()).store)
    resources.known.replace(list(objects.values()))
    return resources.capacities


def one_by_one(units: Mapping[NodeName, int], present: Mapping[NodeName, int], capacities: Capacities) -> set[NodeName]:
    """Which of the nodes are refused, where each is asked about with all that was allowed before it."""
    now = capacities.in_force(NAME)
    refused, allowed = set(), dict(present)
    for name in sorted(units, key=lambda name: units[name] > now.get(name, 0)):
        after = {**allowed, name: units[name]}
        is_more = units[name] > now.get(name, 0)
        if is_more and (capacities.outside(NAME, [name]) or capacities.over(NAME, after) is not None):
            refused.add(name)
        else:
            allowed = after
    return refused


@given(
    st.tuples(st.integers(0, 3), st.integers(0, 12)),
    by_node,
    by_node,
    st.dictionaries(st.sampled_from([*INSIDE, OUTSIDE]), st.integers(0, 4)),
)
def test_refused_are_those_that_would_be_too_much_beside_the_others(
    quota: tuple[int, int],
    present: dict[NodeName, int],
    beside: dict[NodeName, int],
    units: dict[NodeName, int],
) -> None:
    there = {name: nodes for name, nodes in ((NAME, present), (OTHER, beside)) if nodes}
    objects = {
        name: EphemeralResource(name, nodes, uid=f"u{number}", created=float(number), resource_version="1")
        for number, (name, nodes) in enumerate(there.items())
    }
    capacities = capacities_of(quota, objects)
    before = objects.get(NAME)
    step, why = spread(NAME, units, None if before is None else Entry(before, 0.0, "1"), capacities)
    assert why.keys() == one_by_one(units, present, capacities)
    after = outcome(step, before)
    if nodes_of(step):
        had = {} if after is None else after.desired()
        assert {name: had.get(name, 0) for name in units if name not in why} == {
            name: number for name, number in units.items() if name not in why
        }
