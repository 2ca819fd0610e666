"""EscherPolicy objects on both control planes: HTTP and kubectl write the same, the definition's rules refuse what the
API would, and what was good stays in force."""

from __future__ import annotations

import pytest

from extender.adapters.policy_models import example
from extender.adapters.spelling import camel
from extender.core.policies.policy_types import TYPES
from lab.controlplane.api import ApiError
from loadtests.shared.pods import Json
from tests.controlplane.deadline import eventually
from tests.e2e.workload import Arena, away, stays

pytestmark = pytest.mark.timeout(300)

BALANCE: Json = {"type": "balance", "parameters": {"max_skew": 2}, "selector": {"match_labels": {"app": "web"}}}
AS_KUBECTL: Json = {"type": "balance", "parameters": {"maxSkew": 2}, "selector": {"matchLabels": {"app": "web"}}}


class Policies:
    """Those of the test's namespace, as both ways show them."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._objects = f"/apis/escher.dev/v1alpha1/namespaces/{arena.namespace}/escherpolicies"
        self._calls = f"/v1/namespaces/{arena.namespace}/policies"

    def put(self, name: str, body: Json, *, expect: int = 200, **headers: str) -> Json:
        return self._arena.service.call("PUT", f"{self._calls}/{name}", body, expect=expect, **headers)

    def call(self, method: str, path: str, body: object = None, *, expect: int = 200, **headers: str) -> Json:
        return self._arena.service.call(method, f"{self._calls}{path}", body, expect=expect, **headers)

    def told(self, name: str) -> Json:
        return self.call("GET", f"/{name}")

    def apply(self, name: str, spec: Json) -> None:
        """As kubectl does, that is, whoever else writes it."""
        body = {"apiVersion": "escher.dev/v1alpha1", "kind": "EscherPolicy", "metadata": {"name": name}, "spec": spec}
        try:
            self._arena.api.post(self._objects, body)
        except ApiError as error:
            if error.status != 409:
                raise
            self._arena.api.patch(f"{self._objects}/{name}", {"spec": spec})

    def stored(self, name: str) -> Json:
        return self._arena.api.get(f"{self._objects}/{name}")

    def delete(self, name: str) -> None:
        self._arena.api.delete(f"{self._objects}/{name}")

    def until_ready(self, name: str, is_ready: bool = True) -> Json:
        """The Ready condition, once it is about what the spec says now."""

        def said() -> Json | None:
            stored = self.stored(name)
            found = {each["type"]: each for each in stored.get("status", {}).get("conditions", ())}.get("Ready", {})
            is_now = found.get("observedGeneration") == stored["metadata"]["generation"]
            return found if is_now and found["status"] == str(is_ready) else None

        eventually(said, what=f"{name} being {'ready' if is_ready else 'refused'}")
        ready = said()
        assert ready is not None
        return ready


@pytest.fixture
def policies(arena: Arena) -> Policies:
    return Policies(arena)


def test_what_kubectl_writes_and_what_http_writes_is_the_same(policies: Policies) -> None:
    put = policies.put("a", BALANCE)
    assert (put["ready"], put["in_force"]["parameters"]["max_skew"]) == (True, 2)
    policies.apply("b", AS_KUBECTL)
    for name in "ab":
        policies.until_ready(name)
        stored = policies.stored(name)
        assert stored["spec"] == stored["status"]["inForce"] == AS_KUBECTL
    one, other = policies.told("a"), policies.told("b")
    assert {**one, "name": "", "version": ""} == {**other, "name": "", "version": ""}
    assert [each["name"] for each in policies.call("GET", "")["items"]] == ["a", "b"]
    policies.delete("a")
    eventually(lambda: [each["name"] for each in policies.call("GET", "")["items"]] == ["b"], what="a being gone")
    policies.call("DELETE", "/b", expect=204)
    with pytest.raises(ApiError, match="404"):
        policies.stored("b")


def test_the_example_of_every_type_is_taken_both_ways(policies: Policies) -> None:
    for kind in TYPES:
        policies.put(f"{kind}-http", {"type": kind, "parameters": dict(example(kind))})
        spelt = {camel(name): value for name, value in example(kind).items()}
        policies.apply(kind, {"type": kind, "parameters": spelt})
    for kind in TYPES:
        policies.until_ready(kind)
        spec = policies.stored(f"{kind}-http")["spec"]
        assert spec == {key: each for key, each in policies.stored(kind)["spec"].items() if each != {}}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"type": "anti-affinty"}, "spec.type: Unsupported value"),
        ({"type": "data-locality"}, "data-locality needs parameters.data"),
        ({"type": "objective", "parameters": {"prefer": "lowest"}}, "objective needs parameters.label"),
        ({"type": "balance", "parameters": {"size": 2}}, "parameters.size is for co-location only; remove it"),
        ({"type": "balance", "parameters": {"maxSkew": 0}}, "should be greater than or equal to 1"),
        ({"type": "soft", "parameters": {"preferences": ["A"]}}, "should match"),
        (
            {"type": "bin-packing", "selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            "In and NotIn need values",
        ),
    ],
)
def test_the_api_server_refuses_what_the_api_would(policies: Policies, spec: Json, said: str) -> None:
    with pytest.raises(ApiError, match=said) as refused:
        policies.apply("bad", spec)
    assert refused.value.status == 422


def test_what_is_bad_is_refused_and_the_last_good_one_stays_in_force(policies: Policies) -> None:
    before = policies.put("a", BALANCE)
    refused = policies.put("a", {"type": "balance", "parameters": {"max_skew": 0}}, expect=422)
    assert (refused["field"], "not 0" in refused["detail"]) == ("parameters.max_skew", True)
    assert policies.told("a") == before
    policies.apply("a", {**AS_KUBECTL, "selector": {"matchLabels": {"a b": "c"}}})
    ready = policies.until_ready("a", False)
    assert (ready["reason"], "the former spec stays in force" in ready["message"]) == ("Invalid", True)
    assert policies.told("a")["in_force"] == before["in_force"]
    assert policies.stored("a")["status"]["inForce"] == AS_KUBECTL


def test_a_dry_run_and_a_version_that_does_not_hold_change_nothing(policies: Policies) -> None:
    policies.put("a?dryRun=All", BALANCE)
    policies.call("GET", "/a", expect=404)
    made = policies.put("a", BALANCE)
    policies.until_ready("a")
    policies.call("PATCH", "/a", {"parameters": {"max_skew": 3}}, if_match=made["version"])
    for method, path, body in (
        ("PUT", "/a", BALANCE),
        ("PATCH", "/a", {"parameters": {"max_skew": 9}}),
        ("DELETE", "/a", None),
    ):
        policies.call(method, path, body, expect=412, if_match=made["version"])
    policies.call("DELETE", "/a?dryRun=All", expect=204)
    assert policies.told("a")["parameters"] == {"max_skew": 3}


def test_the_status_says_how_many_pods_a_policy_governs(arena: Arena, policies: Policies) -> None:
    arena.nodes(1)
    selected = arena.pod("selected", cpu="10m")
    selected["metadata"]["labels"]["app"] = "web"
    policies.put("a", BALANCE)
    arena.until_bound(
        arena.create(
            selected,
            arena.pod("named", cpu="10m", annotations={"escher.dev/policy": "b|a"}),
            arena.pod("other", cpu="10m"),
        )
    )
    # Counted anew after a twentieth of a second.
    eventually(lambda: policies.told("a")["pods"] == 2, what="both being counted")
    assert policies.call("PATCH", "/a", {"parameters": {"max_skew": 3}})["pods"] == 2
    policies.until_ready("a")
    assert policies.stored("a")["status"]["pods"] == 2


def test_of_a_circle_whoever_closes_it_is_refused_until_it_opens(policies: Policies) -> None:
    def share(parent: str) -> Json:
        return {"type": "fair-share", "parameters": {"parent": parent} if parent else {}}

    policies.put("a", share("b"))
    assert policies.put("b", share("a"), expect=422)["field"] == "parameters.parent"
    policies.apply("b", share("a"))
    assert policies.until_ready("b", False)["reason"] == "Circle"
    policies.put("a", share(""))
    policies.until_ready("b")


def test_a_restart_forgets_nothing_and_writes_nothing(arena: Arena, policies: Policies) -> None:
    policies.put("a", BALANCE)
    policies.apply("b", {"type": "soft", "parameters": {"preferences": ["later"]}})
    for name in "ab":
        policies.until_ready(name)
    stored = [policies.stored(name) for name in "ab"]
    in_force = [policies.told(name)["in_force"] for name in "ab"]
    with away(arena, killed=True):
        pass
    eventually(lambda: arena.service.raw("GET", "/readyz").status_code == 200, what="the service being ready")
    assert [policies.told(name)["in_force"] for name in "ab"] == in_force
    assert stays(lambda: [policies.stored(name) for name in "ab"], what="the policies") == stored
