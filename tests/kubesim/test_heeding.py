"""What the embedded cluster says of what it does not do: one table, warnings, events and a page that agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from kubesim.heeding import HEEDED, UNHEEDED, WITHOUT_CONTAINERS, as_markdown, unheeded
from kubesim.kinds import EVENTS, JOB, POD, Json
from lab.simulation import Simulation
from tests.kubesim.apiserver.apis import PODS, Api
from tests.kubesim.until import until

pytestmark = pytest.mark.anyio

DOCS = Path(__file__).parents[2] / "docs" / "embedded.md"
PREFERS = {"weight": 1, "podAffinityTerm": {"topologyKey": "zone"}}
CLAIM = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}


def spec(**more: Any) -> Json:
    return {"containers": [{"name": "main", "image": "none"}], **more}


def warning(api: Api, path: str, body: Json) -> str | None:
    answer = api.answer("POST", path, body)
    assert answer.status == 201, answer.body
    return answer.headers.get("warning")


def test_every_field_of_a_pod_and_of_a_container_is_in_the_table() -> None:
    fields = set(client.V1PodSpec.attribute_map.values())
    fields |= {f"containers[].{field}" for field in client.V1Container.attribute_map.values()}
    told = {each.field for each in UNHEEDED}
    # Of some fields a part is heeded, and of one several are told together.
    told |= {"volumes", "containers[].readinessProbe", "containers[].startupProbe"}
    known = {*HEEDED, *WITHOUT_CONTAINERS, *told}
    assert fields - known == set()
    assert {field for field in known if "..." not in field and "volumes[]" not in field} == fields


def test_the_documentation_shows_the_table() -> None:
    assert as_markdown() in DOCS.read_text()


@pytest.mark.parametrize(
    ("asked", "where"),
    [
        ({"volumes": [{"name": "tmp", "emptyDir": {}}, CLAIM]}, "spec.volumes[1].persistentVolumeClaim: "),
        ({"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}]}, "spec.volumes[0].ephemeral: "),
        ({"volumes": [{"name": "v", "csi": {"driver": "d"}}]}, "spec.volumes[0].csi: "),
        ({"volumes": [CLAIM, {**CLAIM, "name": "more"}]}, "spec.volumes[0].persistentVolumeClaim and 1 more: "),
        ({"resourceClaims": [{"name": "gpu"}]}, "spec.resourceClaims: "),
        ({"readinessGates": [{"conditionType": "a/b"}]}, "spec.readinessGates: "),
        ({"activeDeadlineSeconds": 5}, "spec.activeDeadlineSeconds: "),
        (
            {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [PREFERS]}}},
            "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution: ",
        ),
        (
            {"containers": [{"name": "main", "image": "none", "readinessProbe": {"exec": {"command": ["true"]}}}]},
            "spec.containers[0].readinessProbe: ",
        ),
    ],
)
async def test_who_asks_for_what_is_not_heeded_is_warned(asked: Json, where: str) -> None:
    said = warning(Api(), PODS, {"metadata": {"name": "a"}, "spec": spec(**asked)})
    assert said is not None
    assert said.startswith(f'299 - "{where}not heeded by the embedded cluster: ')


async def test_who_asks_for_what_is_heeded_is_not_warned() -> None:
    spread = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    required = {"topologyKey": "zone", "namespaceSelector": {}}
    heeded = spec(
        topologySpreadConstraints=[spread],
        affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [required]}},
        volumes=[{"name": "tmp", "emptyDir": {}}, {"name": "conf", "configMap": {"name": "c"}}],
        tolerations=[{"operator": "Exists"}],
        hostNetwork=True,
    )
    assert warning(Api(), PODS, {"metadata": {"name": "a"}, "spec": heeded}) is None


async def test_a_job_is_warned_of_its_template_and_several_things_are_told_in_one_header() -> None:
    template = {"spec": spec(volumes=[CLAIM], activeDeadlineSeconds=5, restartPolicy="Never")}
    said = warning(Api(), JOB.path("default"), {"metadata": {"name": "a"}, "spec": {"template": template}})
    assert said is not None
    assert said.count('299 - "spec.template.spec.') == 2


async def test_an_event_on_the_pod_says_the_same() -> None:
    async with Simulation() as simulation:
        made = await simulation.create({"metadata": {"name": "a"}, "spec": spec(volumes=[CLAIM])}, POD)
        store = simulation.cluster.api.store
        await until(lambda: any(each["reason"] == "NotHeeded" for each in store.list(EVENTS)))
        [told] = [each for each in store.list(EVENTS) if each["reason"] == "NotHeeded"]
    assert told["type"] == "Warning"
    about = told.get("regarding") or told["involvedObject"]
    assert (about["name"], about["uid"]) == ("a", made["metadata"]["uid"])
    assert [told.get("note") or told["message"]] == unheeded(made["spec"])


@pytest.mark.parametrize("odd", [{"volumes": "none"}, {"volumes": [None]}, {"affinity": 3}, {"containers": {}}, {}])
def test_an_odd_spec_asks_for_nothing(odd: Json) -> None:
    assert unheeded(odd) == []
