"""Several who decide, each on nodes of its own or all on the same: what docs/scaling.md builds on, by the transaction
model (mission.md section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from extender.core.ledger import audit as ledger_audit
from extender.core.ledger.ledger import Detection, Holding, Ledger, Mode, Stale
from extender.kube.names import NodeName, PodUid, ResourceKey
from tests.builders import claim, ledger_of, units
from tests.core.snapshots import snapshot

AGENTS, NODES_OF_EACH, CPUS = 3, 2, 4
CPU = ResourceKey("cpu")
ALL = {f"n{number}": {"cpu": CPUS} for number in range(AGENTS * NODES_OF_EACH)}


class Asked(NamedTuple):
    """A transaction of one agent: on which of some nodes it claims how much."""

    agent: int
    claims: Sequence[tuple[int, int]]
    mode: Mode
    reads_before: bool


ASKED = st.lists(
    st.builds(
        Asked,
        st.integers(0, AGENTS - 1),
        st.lists(st.tuples(st.integers(0, 10), st.integers(1, CPUS)), min_size=1, max_size=4),
        st.sampled_from(Mode),
        st.booleans(),
    ),
    max_size=12,
)
detections = st.sampled_from(Detection)


def domain(agent: int) -> list[str]:
    return [name for number, name in enumerate(ALL) if number % AGENTS == agent]


def claims_of(number: int, asked: Asked, nodes: Sequence[str]) -> list[Holding]:
    chosen = [(nodes[node % len(nodes)], cpu) for node, cpu in asked.claims]
    return [claim(f"p{number}-{at}", node, {"cpu": cpu}) for at, (node, cpu) in enumerate(chosen)]


@given(ASKED, detections)
def test_on_nodes_of_their_own_several_decide_as_one_does_and_nobody_is_ever_late(
    transactions: Sequence[Asked], detection: Detection
) -> None:
    one = ledger_of(ALL)
    several = [ledger_of({name: ALL[name] for name in domain(agent)}) for agent in range(AGENTS)]
    # Each reads when it has committed: what others do meanwhile is none of its business.
    read = {agent: [snapshot(ledger).sequences for ledger in (one, several[agent])] for agent in range(AGENTS)}
    for number, asked in enumerate(transactions):
        claims = claims_of(number, asked, domain(asked.agent))
        both = (one, several[asked.agent])
        outcomes = [
            ledger.commit(claims, mode=asked.mode, detection=detection, read=sequences)
            for ledger, sequences in zip(both, read[asked.agent], strict=True)
        ]
        assert outcomes[0] == outcomes[1]
        assert not any(isinstance(cause, Stale) for _, cause in outcomes[0].conflicts)
        read[asked.agent] = [snapshot(ledger).sequences for ledger in both]
    together = {name: row for ledger in several for name, row in snapshot(ledger).rows.items()}
    assert {name: row.held for name, row in together.items()} == held(one)


@given(ASKED, detections)
def test_on_the_same_nodes_one_ledger_that_all_commit_to_never_gives_more_than_there_is(
    transactions: Sequence[Asked], detection: Detection
) -> None:
    owner = ledger_of(ALL)
    read = [snapshot(owner).sequences] * AGENTS
    for number, asked in enumerate(transactions):
        if asked.reads_before:
            read[asked.agent] = snapshot(owner).sequences
        claims = claims_of(number, asked, list(ALL))
        decided = owner.commit(claims, mode=asked.mode, detection=detection, read=read[asked.agent])
        assert ledger_audit.violations(owner) == []
        assert all(row.held.get(CPU, 0) <= CPUS for row in owner.rows.values())
        if any(isinstance(cause, Stale) for _, cause in decided.conflicts) and asked.mode is Mode.ALL_OR_NOTHING:
            # Who reads again is told of nothing but room.
            again = owner.commit(claims, mode=asked.mode, detection=detection, read=snapshot(owner).sequences)
            assert not any(isinstance(cause, Stale) for _, cause in again.conflicts)


def test_two_ledgers_of_one_node_that_hear_of_each_other_too_late_give_more_than_there_is() -> None:
    """So no node is in two domains, unless one of the two asks the other to commit."""
    first, second = ledger_of({"n1": {"cpu": 4}}), ledger_of({"n1": {"cpu": 4}})
    for ledger, name in ((first, "a"), (second, "b")):
        assert ledger.commit([claim(name, "n1", {"cpu": 3})]).conflicts == ()
    first.confirm(PodUid("b"), on=NodeName("n1"), units=units(cpu=3))
    assert first.rows.free(NodeName("n1"), CPU) == -2


def held(ledger: Ledger) -> dict[NodeName, dict[ResourceKey, int]]:
    return {name: dict(row.held) for name, row in snapshot(ledger).rows.items()}
