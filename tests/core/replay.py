"""Prints every decision of the core on a long random script. The same under every hash seed, or a set's order leaked.

Run as `python -m tests.core.replay`.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator

from extender.core.ledger import Holder, Ledger, Mode
from extender.core.names import GangKey, NodeName, PodUid, ResourceKey
from extender.core.planning import Shortfall, Slot, move, plan
from tests.builders import claim, slot, units


def decisions(steps: int) -> Iterator[object]:
    dice = random.Random(7)
    ledger = Ledger()
    nodes = [NodeName(f"node-{index}") for index in range(12)]
    ours = [ResourceKey(f"escher.dev/team.{name}") for name in ("a", "b", "c")]
    for step in range(steps):
        node, uid, gang = dice.choice(nodes), PodUid(f"p{dice.randrange(6)}"), f"g{step % 5}"
        match dice.randrange(9):
            case 0 | 1:
                ledger.set_node(node, units(cpu=dice.randrange(8), memory=dice.randrange(8)))
            case 2 if dice.random() < 0.3:
                ledger.remove_node(node)
            case 2 | 3:
                ledger.set_capacity(node, dice.choice(ours), dice.randrange(5))
            case 4:
                wanted = [
                    Slot(Holder(f"s{step}-{index}"), units({"cpu": dice.randrange(3), dice.choice(ours): 1}))
                    for index in range(dice.randrange(1, 6))
                ]
                found = plan(ledger, wanted, list(ledger.nodes()))
                yield "plan", found
                if not isinstance(found, Shortfall):
                    former = [held.holder for held in ledger.held_for(GangKey("default", gang))]
                    claims = [slot(s.holder, found[s.holder], s.units, gang=gang, until=step) for s in wanted]
                    yield "commit", ledger.commit(claims, releasing=former)
            case 5:
                several = [claim(f"p{index}", dice.choice(nodes), {"cpu": 1}, until=step + 40.0) for index in range(6)]
                yield "incremental", ledger.commit(several, mode=Mode.INCREMENTAL)
            case 6:
                for held in ledger.held_for(GangKey("default", gang)):
                    yield "move", held.holder, move(ledger, held, list(ledger.nodes()))
            case 7:
                yield "expired", ledger.expire(step - 60.0)
                ledger.confirm(uid, on=node, units=units(cpu=1))
            case _:
                yield "forgot", ledger.forget(uid)
        providers = {resource: list(nodes) for resource, nodes in ledger.providers.items()}
        yield "state", list(ledger.drain_gains()), providers, ledger.unbound_on
    yield list(ledger.holdings()), ledger.snapshot(), ledger.violations()


if __name__ == "__main__":
    sys.stdout.writelines(f"{decision}\n" for decision in decisions(1500))
