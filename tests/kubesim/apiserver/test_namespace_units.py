"""deploy/authorization/namespace-units.yaml: what its CEL says of pods, as the embedded cluster evaluates CEL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kubesim.apiserver.cel import types
from kubesim.apiserver.schemas.policy_expressions import ready

FILE = Path(__file__).parents[3] / "deploy" / "authorization" / "namespace-units.yaml"
POLICY, BINDING = yaml.safe_load_all(FILE.read_text())
[VALIDATION] = POLICY["spec"]["validations"]


def container(key: str, kind: str = "requests") -> dict[str, Any]:
    return {"name": "main", "image": "none", "resources": {kind: {key: "1"}}}


def allowed(**spec: Any) -> bool:
    spec.setdefault("containers", [{"name": "main", "image": "none"}])
    pod = {"metadata": {"name": "p", "namespace": "team-a"}, "spec": spec}
    return bool(ready(VALIDATION["expression"], types.BOOL)({"object": pod}))


OWN = (
    "cpu",
    "escher.dev/x",
    "escher.dev/managed",
    "escher.dev/team-a.x",
    "example.com/team-b.x",
    "xescher.dev/team-b.x",
)
FOREIGN = ("escher.dev/team-b.x", "escher.dev/team-a2.x", "escher.dev/team.x", "escher.dev/team-a-.x", "escher.dev/.x")


@pytest.mark.parametrize("kind", ["requests", "limits"])
@pytest.mark.parametrize("key", [*OWN, *FOREIGN])
def test_a_pod_may_name_its_own_units_and_shared_ones_wherever_it_names_them(key: str, kind: str) -> None:
    first, asking = {"name": "first", "image": "none"}, container(key, kind)
    assert [
        allowed(containers=[first, asking]),
        allowed(containers=[first], initContainers=[asking]),
        allowed(resources={kind: {key: "1"}}),
    ] == [key in OWN] * 3


def test_a_pod_that_asks_for_nothing_is_allowed() -> None:
    assert allowed()


def test_the_message_names_the_namespace_and_what_to_do() -> None:
    said = ready(VALIDATION["messageExpression"], types.TEXT)({"object": {"metadata": {"namespace": "team-a"}}})
    assert "escher.dev/team-a.NAME" in str(said)
    assert "escher.dev/foreign-units: allowed" in str(said)


def test_only_new_pods_are_judged_and_labelled_namespaces_are_not() -> None:
    [rule] = POLICY["spec"]["matchConstraints"]["resourceRules"]
    assert (rule["operations"], rule["resources"]) == (["CREATE"], ["pods"])
    [label] = BINDING["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
    assert label == {"key": "escher.dev/foreign-units", "operator": "NotIn", "values": ["allowed"]}
