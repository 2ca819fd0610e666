"""Objects that make no sense are refused, in kube-apiserver's words; what makes little sense is let in, and shown."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.site import NOBODY, Json, Site

PERCENT = "a valid percent string must be a numeric string followed by an ending '%'"
NO_NAME = "name part must be non-empty"
REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
ODD = {"key": "a", "operator": "Is"}


def budgets_at(site: Site, name: str = "", sub: str = "") -> str:
    return site.at("poddisruptionbudgets", name, group="policy/v1", sub=sub)


def budget(**spec: Any) -> Json:
    return {"metadata": {"name": "a"}, "spec": {"selector": {"matchLabels": {"app": "a"}}, **spec}}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"minAvailable": "half"}, f'spec.minAvailable: Invalid value: "half": {PERCENT}'),
        ({"maxUnavailable": "half"}, f'spec.maxUnavailable: Invalid value: "half": {PERCENT}'),
        ({"minAvailable": "50"}, f'spec.minAvailable: Invalid value: "50": {PERCENT}'),
        ({"minAvailable": "5.5%"}, f'spec.minAvailable: Invalid value: "5.5%": {PERCENT}'),
        ({"minAvailable": "150%"}, 'spec.minAvailable: Invalid value: "150%": must not be greater than 100%'),
        ({"minAvailable": -1}, "spec.minAvailable: Invalid value: -1: must be greater than or equal to 0"),
        ({"minAvailable": 1, "maxUnavailable": 1}, "minAvailable and maxUnavailable cannot be both set"),
        (
            {"unhealthyPodEvictionPolicy": "Perhaps"},
            'spec.unhealthyPodEvictionPolicy: Unsupported value: "Perhaps": supported values: "AlwaysAllow", ',
        ),
        (
            {"selector": {"matchExpressions": [ODD]}},
            'spec.selector.matchExpressions[0].operator: Invalid value: "Is": not a valid selector operator',
        ),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused(site: Site, spec: Json, said: str) -> None:
    assert said in site.refusal(lambda: site.api.post(budgets_at(site), budget(**spec)), 422, "Invalid")


@pytest.mark.parametrize(
    ("amount", "given"), [(1.5, "number 1.5"), (True, "bool"), ({}, "object"), (2**40, "number 1099511627776")]
)
def test_a_budget_of_another_type_is_not_read(site: Site, amount: object, given: str) -> None:
    refused = site.refusal(lambda: site.api.post(budgets_at(site), budget(minAvailable=amount)), 400, "BadRequest")
    assert f"cannot unmarshal {given} into Go struct field PodDisruptionBudgetSpec.spec.minAvailable of type" in refused


def test_a_budget_cannot_be_changed_into_one_that_makes_no_sense(site: Site) -> None:
    site.api.post(budgets_at(site), budget(minAvailable="50%"))
    half = {"spec": {"minAvailable": "half"}}
    assert PERCENT in site.refusal(lambda: site.api.patch(budgets_at(site, "a"), half), 422, "Invalid")
    status = budgets_at(site, "a", "status")
    less = {"status": {"disruptionsAllowed": -1}}
    said = "status.disruptionsAllowed: Invalid value: -1: must be greater than or equal to 0"
    assert said in site.refusal(lambda: site.api.patch(status, less), 422, "Invalid")
    untyped = {"status": {"conditions": [{"status": "True"}]}}
    said = site.refusal(lambda: site.api.patch(status, untyped), 422, "Invalid")
    assert f'status.conditions[0].type: Invalid value: "": {NO_NAME}' in said
    assert "status.conditions[0].lastTransitionTime: Required value" in said
    assert "status.conditions[0].reason: Required value" in said


@pytest.mark.parametrize("condition", [{"status": "True"}, {}, {"type": "", "status": "True"}, None])
def test_a_pods_condition_without_type_is_refused(site: Site, condition: Json | None) -> None:
    site.create(site.pod("a", NOBODY))
    patch = {"status": {"conditions": [condition]}}
    said = site.refusal(lambda: site.api.patch(site.pods_at("a", "status"), patch), 422, "Invalid")
    assert f'status.conditions[0].Type: Invalid value: "": {NO_NAME}' in said


def test_a_nodes_condition_without_type_is_let_in_and_shown(site: Site) -> None:
    node = site.node()
    site.patch_node(node, status={"conditions": [{"status": "True"}, {"type": "Ready"}]})
    shown = site.place.http.get(
        "/api/v1/nodes", headers={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    ).json()
    assert node in [row["cells"][0] for row in shown["rows"]]
    site.until_bound(site.create(site.pod("a", "escher-resources")))


@pytest.mark.parametrize(
    ("resources", "where"),
    [
        ({"limits": {"cpu": "-1"}}, "limits[cpu]"),
        ({"requests": {"memory": "-1Gi"}}, "requests[memory]"),
        ({"limits": {"a.b/c": "-1"}}, "limits[a.b/c]"),
        ({"requests": {"ephemeral-storage": -1}}, "requests[ephemeral-storage]"),
    ],
)
def test_a_negative_amount_is_refused(site: Site, resources: Json, where: str) -> None:
    body = site.pod("a", NOBODY)
    body["spec"]["containers"][0]["resources"] = resources
    said = site.refusal(lambda: site.create(body), 422, "Invalid")
    assert f"spec.containers[0].resources.{where}: Invalid value: " in said
    assert "must be greater than or equal to 0" in said


@pytest.mark.parametrize(
    ("affinity", "said"),
    [
        ({"podAffinity": {REQUIRED: [{}]}}, f"podAffinity.{REQUIRED}[0].topologyKey: Required value: can not be empty"),
        (
            {"podAntiAffinity": {PREFERRED: [{"weight": 0, "podAffinityTerm": {"topologyKey": "a"}}]}},
            f"podAntiAffinity.{PREFERRED}[0].weight: Invalid value: 0: must be in the range 1-100",
        ),
        (
            {"nodeAffinity": {PREFERRED: [{"weight": 101, "preference": {}}]}},
            f"nodeAffinity.{PREFERRED}[0].weight: Invalid value: 101: must be in the range 1-100",
        ),
        (
            {"nodeAffinity": {REQUIRED: {}}},
            f"nodeAffinity.{REQUIRED}.nodeSelectorTerms: Required value: must have at least one node selector term",
        ),
        (
            {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [ODD]}]}}},
            f"nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0].operator: Invalid value: "
            '"Is": not a valid selector operator',
        ),
        (
            {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [{"key": "a", "operator": "In"}]}]}}},
            f'nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchFields[0].key: Invalid value: "a": not a valid field',
        ),
    ],
)
def test_an_affinity_that_makes_no_sense_is_refused(site: Site, affinity: Json, said: str) -> None:
    body = site.pod("a", NOBODY)
    body["spec"]["affinity"] = affinity
    assert f"spec.affinity.{said}" in site.refusal(lambda: site.create(body), 422, "Invalid")


@pytest.mark.parametrize(
    ("volumes", "said"),
    [
        ([{"emptyDir": {}}], "spec.volumes[0].name: Required value"),
        ([{"name": "A"}], 'spec.volumes[0].name: Invalid value: "A": a lowercase RFC 1123 label'),
        ([{"name": "a"}, {"name": "a"}], 'spec.volumes[1].name: Duplicate value: "a"'),
        (
            [{"name": "a", "persistentVolumeClaim": {}}],
            "spec.volumes[0].persistentVolumeClaim.claimName: Required value",
        ),
    ],
)
def test_a_volume_that_makes_no_sense_is_refused(site: Site, volumes: list[Json], said: str) -> None:
    body = site.pod("a", NOBODY)
    body["spec"]["volumes"] = volumes
    assert said in site.refusal(lambda: site.create(body), 422, "Invalid")


def test_a_runtime_class_that_does_not_exist_is_refused(site: Site) -> None:
    body = site.pod("a", NOBODY)
    body["spec"]["runtimeClassName"] = "none"
    said = site.refusal(lambda: site.create(body), 403, "Forbidden")
    assert said == 'pods "a" is forbidden: pod rejected: RuntimeClass "none" not found'


def test_ephemeral_containers_come_later_or_not_at_all(site: Site) -> None:
    body = site.pod("a", NOBODY)
    body["spec"]["ephemeralContainers"] = [{"name": "debug", "image": "none"}]
    said = site.refusal(lambda: site.create(body), 422, "Invalid")
    assert "spec.ephemeralContainers: Forbidden: cannot be set on create" in said


@pytest.mark.parametrize(
    ("field", "number", "bits"), [("terminationGracePeriodSeconds", 2**63, 64), ("priority", 2**40, 32)]
)
def test_a_number_that_is_too_large_for_its_field_is_not_read(site: Site, field: str, number: int, bits: int) -> None:
    body = site.pod("a", NOBODY)
    body["spec"][field] = number
    said = site.refusal(lambda: site.create(body), 400, "BadRequest")
    assert f"cannot unmarshal number {number} into Go struct field PodSpec.spec.{field} of type int{bits}" in said


def test_what_is_nested_without_end_is_not_read(site: Site) -> None:
    deep = b'{"a":' * 20_000 + b"1" + b"}" * 20_000
    spec = b'{"metadata":{"name":"a"},"spec":{"volumes":[{"name":"a","csi":' + deep + b"}]}}"
    refused = site.raw("POST", site.pods_at(), spec)
    assert refused.status_code == 400
    assert "invalid character '{' exceeded max depth" in refused.json()["message"]
    site.create(site.pod("a", NOBODY))
    merge = site.raw("PATCH", site.pods_at("a"), deep, content_type="application/merge-patch+json")
    assert (merge.status_code, merge.json()["message"]) == (
        400,
        "error decoding patch: invalid character '{' exceeded max depth",
    )


def test_a_negative_limit_is_none(site: Site) -> None:
    site.config_map("a")
    found = site.raw("GET", site.maps_at(), limit=-1)
    assert found.status_code == 200
    assert "a" in [each["metadata"]["name"] for each in found.json()["items"]]
