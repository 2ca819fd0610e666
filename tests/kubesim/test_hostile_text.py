"""On the embedded cluster: tenants' text in pods is in no event, metric or line of the log as it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from prometheus_client import generate_latest
from structlog.testing import capture_logs

from kubesim.kinds import EVENT, Json
from tests.app.town import Town

pytestmark = pytest.mark.anyio
HOSTILE = "\x1b[2J\rA\nFORGED \u202e\u2028[red]" + "k" * 5_000


@pytest.fixture
async def town() -> AsyncIterator[Town]:
    async with Town(2) as made:
        yield made


def hostile_pods(town: Town) -> list[Json]:
    """Pods that wait, with hostile text wherever the API server lets it stand and Escher reads."""
    owned = [town.pod(f"owned-{number}") for number in range(3)]
    for each in owned:
        reference = {"apiVersion": "x.io/v1", "kind": HOSTILE, "name": HOSTILE, "uid": "u", "controller": True}
        each["metadata"]["ownerReferences"] = [reference]
        each["metadata"].setdefault("annotations", {})["escher.dev/gang-min-member"] = "3"
    annotated = []
    for number, key in enumerate(("gang-min-member", "gang-timeout-seconds", "policy", "anti-affinity", "preference")):
        made = town.pod(f"annotated-{number}", 1)
        asked = {"escher.dev/gang-min-member": "1", f"escher.dev/{key}": HOSTILE}
        made["metadata"]["annotations"] = {**made["metadata"].get("annotations", {}), **asked}
        made["metadata"].setdefault("labels", {})["escher.dev/gang"] = f"g{number}"
        annotated.append(made)
    return [*owned, *annotated]


async def test_events_metrics_and_the_log_have_nothing_raw(town: Town) -> None:
    with capture_logs() as logged:
        for each in hostile_pods(town):
            town.create(each)
        await asyncio.sleep(120)
    told = [each for each in town.store.list(EVENT) if each.get("reportingInstance") == "escher"]
    assert told, "nothing was told of these pods"
    for event in told:
        texts = [event["message"], event["reason"], *(str(each) for each in event["involvedObject"].values())]
        assert all(text.isprintable() for text in texts), texts
        assert len(event["message"].encode()) <= 1024
    metrics = generate_latest(town.simulation.application.registry).decode()
    assert metrics.replace("\n", "").isprintable()
    assert "FORGED" not in metrics
    # A line of the log is written by `LogLines`; here it is seen that none is as long as a tenant likes.
    assert all(len(str(each)) < 20_000 for each in logged)
