"""Prints every decision of the core on a long random script. The same under every hash seed, or a set's order leaked.

Run as `python -m tests.core.replay`.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator

from extender.core.gangs.state.bin_packing import Shortfall, Slot, plan
from extender.core.ledger import audit as ledger_audit
from extender.core.ledger.ledger import Holder, Ledger, Mode
from extender.core.names import GangKey
from extender.kube.names import NodeName, PodUid, ResourceKey
from tests.builders import claim, slot, units
from tests.core.snapshots import snapshot


def decisions(steps: int) -> Iterator[object]:
    dice = random.Random(7)
    ledger = Ledger()
    nodes = [NodeName(f"node-{index}") for index in range(12)]
    ours = [ResourceKey(f"escher.dev/team.{name}") for name in ("a", "b", "c")]
    for step in range(steps):
        node, uid, gang = dice.choice(nodes), PodUid(f"p{dice.randrange(6)}"), f"g{step % 5}"
        match dice.randrange(9):
            case 0 | 1:
                ledger.capacity.set_node(node, units(cpu=dice.randrange(8), memory=dice.randrange(8)))
            case 2 if dice.random() < 0.3:
                ledger.capacity.remove_node(node)
            case 2 | 3:
                ledger.capacity.set(node, dice.choice(ours), dice.randrange(5))
            case 4:
                wanted = [
                    Slot(Holder(f"s{step}-{index}"), units({"cpu": dice.randrange(3), dice.choice(ours): 1}))
                    for index in range(dice.randrange(1, 6))
                ]
                found = plan(ledger, wanted, list(ledger.rows.present()))
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
                    yield "held", held
            case 7:
                yield "expired", ledger.expire(step - 60.0)
                ledger.confirm(uid, on=node, units=units(cpu=1))
            case _:
                yield "forgot", ledger.forget(uid)
        providers = {resource: list(nodes) for resource, nodes in ledger.totals.providers.items()}
        yield "state", list(ledger.changes.drain_gains()), providers, ledger.totals.unbound_on
    yield list(ledger.rows.holdings()), snapshot(ledger), ledger_audit.violations(ledger)


if __name__ == "__main__":
    sys.stdout.writelines(f"{decision}\n" for decision in decisions(1500))
