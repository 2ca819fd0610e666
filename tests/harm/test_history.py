"""Escher in a cluster with a history: an hour beside others, and they are as they were; uninstalled, so is the cluster.

The same scene on a real control plane: tests/e2e/test_history.py.
"""

from __future__ import annotations

import pytest

from extender.settings.settings import load_settings
from kubesim.apiserver.serving.in_process import InProcess
from kubesim.kinds import NODE, POD, Json
from lab.simulation import SERVICE, Simulation
from loadtests.harm import harms
from loadtests.history import touches
from loadtests.history.course import BINDINGS, KEYS
from loadtests.history.scene import LAB, SHOP, TRIALS
from loadtests.history.virtual import play
from loadtests.life.actors.hands import Hands

pytestmark = pytest.mark.anyio

HOUR = 3600.0
SHORT = 200.0


@pytest.fixture
def anyio_backend(virtual_time: object) -> object:
    return virtual_time


async def test_an_hour_beside_others_leaves_them_and_the_cluster_as_they_were() -> None:
    outcome = await play(HOUR)
    assert outcome.findings == []
    assert outcome.evictions == 0
    # And Escher was not idle.
    assert outcome.writes["pods/binding"] == BINDINGS
    assert outcome.writes["ephemeralresources/status"] > 0
    assert outcome.writes["escherpolicies/status"] > 0
    # What an earlier installation had left on nodes was taken away; what others have there was compared.
    assert outcome.keys == KEYS


async def test_others_are_safe_by_a_setting_and_not_for_want_of_a_reason() -> None:
    """The same, but Escher is told that it may take them: it does, and all witnesses say so."""
    outcome = await play(SHORT, settings=load_settings(None, preempt_foreign_pods=True, evictions_per_second=100))
    assert outcome.evictions
    assert any(each.startswith("create pods/eviction") for each in outcome.touched)
    assert any(harms.FOREIGN in each or harms.VICTIM in each for each in outcome.harmed)
    assert any("is not there any more" in each for each in outcome.changed)


async def test_whatever_the_service_writes_to_others_is_seen() -> None:
    """A label of a pod, a Binding, and a key of a node's status that is in no domain of ours."""

    async def write(simulation: Simulation) -> None:
        service, store = Hands(InProcess(simulation.cluster.api, user=SERVICE)), simulation.cluster.api.store
        labelled, bound = store.get(POD, LAB, "ring-1"), store.get(POD, LAB, "ring-2")
        node = store.get(NODE, "", "old-4")
        assert labelled is not None
        assert bound is not None
        assert node is not None
        assert await service.merge(POD, labelled, {"metadata": {"labels": {"escher.dev/seen": "yes"}}})
        assert await service.bind(bound, "old-1")
        patch = {"status": {"capacity": {"app.escher.dev/lab.ring-1": None}}}
        assert await service.merge(NODE, node, patch, "status")

    outcome = await play(SHORT, meanwhile=write)
    assert outcome.touched == [f"patch pods {LAB}/ring-1", f"create pods/binding {LAB}/ring-2"]
    seen = "\n".join(outcome.changed)
    assert f"{POD.path(LAB, 'ring-1')}: .metadata.labels.escher.dev/seen was None and is yes" in seen
    assert f"{POD.path(LAB, 'ring-2')}: .spec.nodeName was None and is old-1" in seen
    assert f"{NODE.path(name='old-4')}: .status.capacity.app.escher.dev/lab.ring-1 was 2 and is None" in seen


def test_a_word_about_anothers_pod_is_seen_and_one_about_its_own_of_old_is_none() -> None:
    judged = touches.Touches()
    for name in ("web-1", "veteran-1"):
        judged.heard(
            {
                "stage": "ResponseComplete",
                "verb": "create",
                "user": {"username": SERVICE},
                "objectRef": {"resource": "events", "apiGroup": "events.k8s.io", "namespace": SHOP, "name": "said"},
                "requestObject": {"regarding": {"name": name}},
                "responseStatus": {"code": 201},
            }
        )
    assert judged.found == [f"create events {SHOP}/said"]


def test_fields_that_the_service_has_written_are_seen_but_for_keys_of_our_domain_on_nodes() -> None:
    capacity: Json = {"f:escher.dev/trials.data": {}, "f:nvidia.com/gpu": {}}
    fields = {"f:status": {"f:capacity": capacity}}
    entry = {"manager": SERVICE, "operation": "Update", "subresource": "status", "fieldsV1": fields}
    written = {"metadata": {"name": "any", "managedFields": [entry, {**entry, "manager": "kubelet"}]}}
    node, pod, own = NODE.path(name="old-1"), POD.path(SHOP, "web-1"), POD.path(TRIALS, "train-1")
    assert touches.managed({node: written, pod: written, own: written}) == [
        f"{node}: f:status f:capacity f:nvidia.com/gpu",
        f"{pod}: f:status f:capacity f:escher.dev/trials.data",
        f"{pod}: f:status f:capacity f:nvidia.com/gpu",
    ]
