"""A tenant lies in all that it may write of its own namespace; its neighbour does not feel it.

docs/security.md, "What Escher reads, and what a lie reaches", has a row for each.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kubesim.kinds import DISRUPTION_BUDGET, EVENT, JOB, LEASE, POD, Json
from loadtests.shared.pods import pod
from tests.kubesim.asking import EPHEMERAL_RESOURCE
from tests.lies.town import POLICY, VICTIM, Tenants, a_job, a_reader, two_tenants

pytestmark = pytest.mark.anyio

Lie = Callable[[Tenants], Awaitable[Any]]
LIES: dict[str, Lie] = {}


def lie(what: Lie) -> Lie:
    LIES[what.__name__.replace("_", " ")] = what
    return what


# -- pods ---------------------------------------------------------------------------------------------------------


@lie
async def a_gang_of_the_neighbours_name(town: Tenants) -> None:
    await town.gang(town.liar, "train", 2, quorum=3)


@lie
async def an_owner_of_the_neighbours_uid(town: Tenants) -> None:
    [job] = town.all(VICTIM, JOB).values()
    body = pod("child", quorum=3, cpu="500m")
    metadata = job["metadata"]
    body["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": metadata["name"], "uid": metadata["uid"], "controller": True}
    ]
    await town.lie(body)


@lie
async def an_owner_of_any_text(town: Tenants) -> None:
    body = pod("child", quorum=2, cpu="500m")
    body["metadata"]["ownerReferences"] = [
        {"apiVersion": "a/b", "kind": "\x1b[2J" * 50, "name": "\n" * 200, "uid": "u" * 5000, "controller": True}
    ]
    await town.lie(body)


@lie
async def a_binding_mark_that_names_the_neighbours_pods(town: Tenants) -> None:
    """As Escher writes it with a Binding: of the victim's attempt, and of one that never was whole."""
    marked = town.all(VICTIM)["train-0"]["metadata"]
    others = [each["metadata"]["uid"] for each in town.all(VICTIM).values()]
    for number in range(2):
        made = await town.lie(pod(f"mine-{number}", cpu="500m", gang="mine", quorum=1))
        mark = json.loads(marked["annotations"]["escher.dev/attempt"])
        said = {**mark, "pod": made["metadata"]["uid"], "with": others, "needed": 16, "size": 16}
        await town.edit(POD, f"mine-{number}", annotated("escher.dev/attempt", json.dumps(said)))


@lie
async def a_binding_mark_of_any_json(town: Tenants) -> None:
    for number, text in enumerate(("[" * 100_000, '{"pod":' + "9" * 5000 + "}", "x" * 200_000, "{}")):
        await town.lie(pod(f"odd-{number}", cpu="500m", annotations={"escher.dev/attempt": text}))


@lie
async def a_wake_mark_that_changes_all_the_time(town: Tenants) -> None:
    await town.lie(pod("huge", cpu="99"))
    for number in range(300):
        await town.edit(POD, "huge", annotated("escher.dev/wake", str(number)))


@lie
async def a_gate_of_ours_without_a_gang(town: Tenants) -> None:
    await town.lie(pod("gated", cpu="500m", gated=True))


@lie
async def gang_keys_that_say_nonsense(town: Tenants) -> None:
    keys = ("escher.dev/gang-min-member", "escher.dev/gang-timeout-seconds")
    for number, value in enumerate(("-1", "9" * 5000, "\x00", "1e9", "", "NaN", "\u202e8")):
        said = dict.fromkeys(keys, value)
        await town.lie(pod(f"nonsense-{number}", cpu="500m", gang="nonsense", annotations=said))


@lie
async def a_gang_larger_than_anything(town: Tenants) -> None:
    await town.gang(town.liar, "giant", 2, quorum=10_000)


@lie
async def the_neighbours_policy_by_name(town: Tenants) -> None:
    for number, named in enumerate(("apart", "victim/apart", "apart|apart", ",|,", "a" * 300)):
        await town.lie(
            pod(f"web-{number}", cpu="500m", labels={"app": "web"}, annotations={"escher.dev/policy": named})
        )


@lie
async def a_group_of_scheduler_plugins_that_is_nowhere(town: Tenants) -> None:
    await town.lie(pod("grouped", cpu="500m", labels={"scheduling.x-k8s.io/pod-group": "train"}))


@lie
async def units_of_the_neighbours_resource(town: Tenants) -> None:
    for number in range(4):
        await town.lie(a_reader(f"thief-{number}", 3))


@lie
async def an_answer_of_the_neighbours_policy(town: Tenants) -> None:
    for number in range(3):
        await town.lie(pod(f"asked-{number}", cpu="500m", labels={"esl.escher.dev/apart": f"train-{number}"}))


@lie
async def a_run_time_of_the_authors_choice(town: Tenants) -> None:
    for seconds in ("-1", "1e400", "nan", "x" * 1000):
        name = f"runs-{len(seconds)}-{seconds[0].strip('-') or 'minus'}"
        await town.lie(pod(name, cpu="500m", annotations={"escher.dev/run-seconds": seconds}))


@lie
async def a_mirror_of_a_static_pod(town: Tenants) -> None:
    body = pod("mirror", cpu="500m", annotations={"kubernetes.io/config.mirror": "x"})
    body["spec"]["nodeName"] = "node-0"
    await town.lie(body)


@lie
async def a_pod_of_a_daemon_set_that_is_nowhere(town: Tenants) -> None:
    body = pod("daemon", cpu="500m")
    body["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "nothing", "controller": True}
    ]
    await town.lie(body)


@lie
async def annotations_of_the_older_policies(town: Tenants) -> None:
    said = {
        "escher.dev/share": "research",
        "escher.dev/share-weight": "9" * 400,
        "escher.dev/anti-affinity-group": "web",
    }
    for key, value in said.items():
        await town.lie(pod(key.rpartition("/")[2], cpu="500m", annotations={key: value}))


# -- objects of other kinds -----------------------------------------------------------------------------------------


@lie
async def a_mark_copied_from_the_neighbours_resource(town: Tenants) -> None:
    [data] = town.all(VICTIM, EPHEMERAL_RESOURCE).values()
    marks = (data["metadata"].get("annotations") or {}) | {
        "escher.dev/mark": "0123456789abcdef.digest.fedcba9876543210"
    }
    await town.lie(a_resource("data", {"node-0": 9}, marks), EPHEMERAL_RESOURCE)


@lie
async def a_choice_that_was_never_made(town: Tenants) -> None:
    made = json.dumps({"capacity": 2**62, "nodeSpec": {"nodeName": "node-0"}, "nodes": ["node-0"] * 1000})
    said = {"escher.dev/chosen": made, "escher.dev/policy": "queue/apart"}
    await town.lie(a_resource("chosen", {"node-0": 1}, said), EPHEMERAL_RESOURCE)


@lie
async def a_status_that_says_another_form_is_in_force(town: Tenants) -> None:
    await town.lie(a_resource("data", {"node-0": 1}), EPHEMERAL_RESOURCE)
    in_force = {"nodes": {"node-0": 999}, "inForce": {"nodes": {"node-0": 999}}, "observedGeneration": 10**9}
    await town.edit(EPHEMERAL_RESOURCE, "data", {"status": in_force}, status=True)


@lie
async def a_policy_whose_status_says_it_governs(town: Tenants) -> None:
    spec = {"type": "anti-affinity", "selector": {}}
    await town.lie({"metadata": {"name": "apart"}, "spec": spec}, POLICY)
    ready = {"type": "Ready", "status": "True", "reason": "x", "message": "\n"}
    said = {"conditions": [{**ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}], "inForce": spec}
    await town.edit(POLICY, "apart", {"status": said}, status=True)


@lie
async def an_intent_of_the_old_form(town: Tenants) -> None:
    formers = [{"name": "data", "deletes": True, "was": a_resource("data", {"node-0": 9}) | {"namespace": VICTIM}}]
    said = {"transaction": "0123456789abcdef", "objects": formers, "deciding": "", "others": [VICTIM], "givenUp": True}
    mark = {"escher.dev/transaction": json.dumps(said)}
    await town.lie(a_resource("transaction-0123456789abcdef", {}, mark), EPHEMERAL_RESOURCE)


@lie
async def a_budget_that_forbids_everything(town: Tenants) -> None:
    await town.lie({"metadata": {"name": "none"}, "spec": {"maxUnavailable": 0, "selector": {}}}, DISRUPTION_BUDGET)


@lie
async def a_job_that_promises_more_than_it_makes(town: Tenants) -> None:
    job = a_job("nightly", 2)
    job["spec"] |= {"parallelism": 10_000, "completions": 10_000, "suspend": True}
    await town.lie(job, JOB)
    uid = town.all(town.liar, JOB)["nightly"]["metadata"]["uid"]
    body = pod("promised", quorum=10_000, cpu="500m")
    body["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "nightly", "uid": uid, "controller": True}
    ]
    await town.lie(body)


@lie
async def events_of_our_names(town: Tenants) -> None:
    for number, pod_ in enumerate(town.all(VICTIM).values()):
        about = {key: pod_["metadata"][key] for key in ("name", "uid")} | {"kind": "Pod", "namespace": town.liar}
        body: Json = {"metadata": {"name": f"told-{number}"}, "involvedObject": about, "reason": "GangPreempts"}
        await town.lie({**body, "message": "x", "reportingComponent": "escher", "type": "Normal"}, EVENT)


@lie
async def leases_of_our_names(town: Tenants) -> None:
    for name in ("escher", "escher-ghosts-x"):
        spec = {"holderIdentity": "liar", "leaseDurationSeconds": 2**31 - 1, "leaseTransitions": 2**31 - 1}
        metadata = {"name": name, "labels": {"escher.dev/ghost-lease": "true"}}
        await town.lie({"metadata": metadata, "spec": spec}, LEASE)


@lie
async def ghosts_of_a_gang_without_extender(town: Tenants) -> None:
    labels = {"escher.dev/ghost": "train", "escher.dev/run": "x"}
    await town.lie(pod("ghost", "escher-resources", cpu="500m", labels=labels))


def annotated(key: str, value: str) -> Json:
    return {"metadata": {"annotations": {key: value}}}


def a_resource(name: str, nodes: dict[str, int], annotations: dict[str, str] | None = None) -> Json:
    return {"metadata": {"name": name, "annotations": annotations or {}}, "spec": {"nodes": nodes}}


@pytest.fixture
def anyio_backend(virtual_time: object) -> object:
    return virtual_time


@pytest.mark.parametrize("name", LIES)
async def test_a_lie_does_not_reach_a_neighbour(name: str) -> None:
    async with two_tenants() as town:
        await LIES[name](town)
        await town.is_unharmed()
