"""What the ledger holds and nobody is bound to, from what the service tells of itself."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from extender.kube.errors import Unavailable
from kubesim.virtual_time import VirtualTimeLoop
from lab.compare.reserved import held_cpu, reserving

TOLD = """\
escher_ledger_units{resource_class="cpu",state="capacity"} 64000.0
escher_ledger_units{resource_class="cpu",state="bound"} 8000.0
escher_ledger_units{resource_class="cpu",state="reserved"} 3000.0
escher_ledger_units{resource_class="cpu",state="assumed"} 1000.0
escher_ledger_units{resource_class="cpu",state="saved"} 500.0
escher_ledger_units{resource_class="pods",state="reserved"} 7.0
"""


def test_what_is_reserved_assumed_or_saved_counts_and_nothing_that_is_bound() -> None:
    assert held_cpu(TOLD) == 4.5
    assert held_cpu("") == 0


class Service:
    """Holds all of it for the first seconds."""

    def __init__(self, until: float) -> None:
        self._until = until
        self.asked = 0

    async def metrics(self) -> str:
        self.asked += 1
        return TOLD if asyncio.get_running_loop().time() < self._until else ""


def cpu_seconds(service: Service, seconds: float) -> float | None:
    async def sampled() -> float | None:
        async with reserving(service, Random(7)) as found:
            await asyncio.sleep(seconds)
        return found.cpu_seconds(seconds)

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(sampled())


def test_it_is_counted_for_as_long_as_it_is_held_and_seldom_asked_for() -> None:
    service = Service(until=25.0)
    assert cpu_seconds(service, 100.0) == pytest.approx(25 * 4.5, rel=0.1)
    assert service.asked == pytest.approx(400, rel=0.1)


def test_what_was_too_short_for_a_sample_was_not_measured() -> None:
    assert cpu_seconds(Service(until=25.0), 1e-6) is None


def test_a_service_that_does_not_tell_is_not_taken_for_one_that_holds_nothing() -> None:
    class Dying(Service):
        async def metrics(self) -> str:
            said = await super().metrics()
            if not said:
                raise Unavailable("nobody is there")
            return said

    assert cpu_seconds(Dying(until=5.0), 10.0) is None
