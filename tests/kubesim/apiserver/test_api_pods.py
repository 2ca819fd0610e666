"""Pods and nodes: what admission fills in, what may change, binding, eviction and the end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubesim.kinds import DISRUPTION_BUDGET, PRIORITY_CLASS, Json
from tests.kubesim.apiserver.apis import JSON_PATCH, MERGE, NODES, PODS, STRATEGIC, Api, binding, node, pod

pytestmark = pytest.mark.anyio

GATE = "escher.dev/gang"


def condition(obj: Json, of_type: str) -> Json:
    (found,) = [each for each in obj["status"]["conditions"] if each["type"] == of_type]
    return dict(found)


class TestANewPod:
    async def test_has_what_kubernetes_fills_in(self) -> None:
        made = Api().ok("POST", PODS, pod(asks={"cpu": "500m", "escher.dev/x": "1"}))
        assert made["metadata"]["generation"] == 1
        assert made["status"] == {"phase": "Pending", "qosClass": "Burstable"}
        spec = made["spec"]
        (container,) = spec.pop("containers")
        (first, second) = spec.pop("tolerations")
        assert spec == {
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "securityContext": {},
            "schedulerName": "default-scheduler",
            "enableServiceLinks": True,
            "priority": 0,
            "preemptionPolicy": "PreemptLowerPriority",
        }
        assert container["resources"]["requests"] == {"cpu": "500m", "escher.dev/x": "1"}
        assert container["imagePullPolicy"] == "IfNotPresent"
        assert (first["key"], second["key"]) == ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
        assert first["tolerationSeconds"] == 300

    async def test_has_the_priority_of_its_class(self) -> None:
        api = Api()
        classes = PRIORITY_CLASS.path()
        api.ok("POST", classes, {"metadata": {"name": "high"}, "value": 7, "preemptionPolicy": "Never"})
        spec = api.ok("POST", PODS, pod("a", priorityClassName="high"))["spec"]
        assert (spec["priority"], spec["preemptionPolicy"]) == (7, "Never")
        assert (
            api.ok("POST", PODS, pod("b", priorityClassName="system-node-critical"))["spec"]["priority"] == 2000001000
        )
        status, _, message = api.refused("POST", PODS, pod("c", priorityClassName="none"))
        assert (status, message) == (403, 'pods "c" is forbidden: no PriorityClass with name none was found')
        assert api.refused("POST", PODS, pod("c", priority=3))[0] == 403
        api.ok("POST", classes, {"metadata": {"name": "usual"}, "value": 3, "globalDefault": True})
        spec = api.ok("POST", PODS, pod("d"))["spec"]
        assert (spec["priority"], spec["priorityClassName"]) == (3, "usual")

    async def test_says_that_it_is_gated(self) -> None:
        made = Api().ok("POST", PODS, pod(schedulingGates=[{"name": GATE}]))
        gated = condition(made, "PodScheduled")
        assert (gated["status"], gated["reason"]) == ("False", "SchedulingGated")
        assert gated["message"] == "Scheduling is blocked due to non-empty scheduling gates"

    @pytest.mark.parametrize(
        ("resources", "problem"),
        [
            ({"requests": {"a.b/x": "1"}}, "Limit must be set for non overcommitable resources"),
            ({"requests": {"a.b/x": "1"}, "limits": {"a.b/x": "2"}}, "must be equal to a.b/x limit of 2"),
            ({"limits": {"a.b/x": "1500m"}}, "must be an integer"),
            ({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}, "must be less than or equal to cpu limit of 1"),
            ({"requests": {"cpu": "-1"}}, "must be greater than or equal to 0"),
            ({"requests": {"foo": "1"}}, "must be a standard resource for containers"),
        ],
    )
    async def test_asks_for_amounts_that_make_sense(self, resources: Json, problem: str) -> None:
        body = pod()
        body["spec"]["containers"][0]["resources"] = resources
        status, _, message = Api().refused("POST", PODS, body)
        assert status == 422
        assert problem in message

    @pytest.mark.parametrize(
        "spec",
        [
            {"containers": []},
            {"containers": [{"name": "a"}]},
            {"containers": [{"name": "A", "image": "x"}]},
            {"containers": [{"name": "a", "image": "x"}, {"name": "a", "image": "x"}]},
            {"restartPolicy": "Sometimes"},
            {"schedulingGates": [{"name": "not a name"}]},
            {"schedulingGates": [{"name": "a"}, {"name": "a"}]},
            {"schedulingGates": [{"name": "a"}], "nodeName": "n"},
            {"tolerations": [{"key": "a", "operator": "Exists", "value": "x"}]},
            {"nodeSelector": {"a b": "c"}},
        ],
    )
    async def test_follows_rules(self, spec: dict[str, Any]) -> None:
        assert Api().refused("POST", PODS, pod(**spec))[:2] == (422, "Invalid")

    async def test_is_guaranteed_burstable_or_best_effort(self) -> None:
        api = Api()
        whole = {"cpu": "1", "memory": "1Gi"}
        found = [
            api.ok("POST", PODS, pod(name, asks=asks)) for name, asks in (("a", whole), ("b", {"cpu": "1"}), ("c", {}))
        ]
        assert [each["status"]["qosClass"] for each in found] == ["Guaranteed", "Burstable", "BestEffort"]


class TestABinding:
    async def test_puts_the_pod_on_the_node(self) -> None:
        api = Api()
        api.ok("POST", PODS, pod())
        api.ok("PATCH", f"{PODS}/p/status", {"status": {"nominatedNodeName": "m"}}, media=MERGE)
        said = api.ok(
            "POST", f"{PODS}/p/binding", {**binding("p"), "metadata": {"name": "p", "annotations": {"a": "b"}}}
        )
        assert said == {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
        bound = api.get(f"{PODS}/p")
        assert bound["spec"]["nodeName"] == "n"
        assert bound["metadata"]["annotations"] == {"a": "b"}
        assert condition(bound, "PodScheduled")["status"] == "True"
        assert "nominatedNodeName" not in bound["status"]

    async def test_is_made_once(self) -> None:
        api = Api()
        api.ok("POST", PODS, pod())
        api.ok("POST", f"{PODS}/p/binding", binding("p"))
        assert api.refused("POST", f"{PODS}/p/binding", binding("p", "m")) == (
            409,
            "Conflict",
            'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "n"',
        )

    async def test_is_about_the_pod_that_it_names(self) -> None:
        api = Api()
        api.ok("POST", PODS, pod())
        assert api.refused("POST", f"{PODS}/q/binding", binding("q"))[:2] == (404, "NotFound")
        status, _, message = api.refused("POST", f"{PODS}/p/binding", binding("p", uid="0"))
        assert status == 409
        assert "UID in precondition: 0" in message
        assert api.refused("POST", f"{PODS}/p/binding", binding("q"))[0] == 400
        assert api.refused("POST", f"{PODS}/p/binding", {"metadata": {"name": "p"}})[0] == 500

    async def test_is_refused_for_pods_that_are_gated_or_going(self) -> None:
        api = Api()
        api.ok("POST", PODS, pod("g", schedulingGates=[{"name": GATE}]))
        assert api.refused("POST", f"{PODS}/g/binding", binding("g"))[2].endswith("has non-empty .spec.schedulingGates")
        api.ok("POST", PODS, pod("d"))
        api.ok("PATCH", f"{PODS}/d", {"metadata": {"finalizers": ["a.b/c"]}}, media=MERGE)
        api.ok("DELETE", f"{PODS}/d")
        message = api.refused("POST", f"{PODS}/d/binding", binding("d"))[2]
        assert message.endswith("pod d is being deleted, cannot be assigned to a host")

    async def test_can_be_posted_to_the_older_path(self) -> None:
        api = Api()
        api.ok("POST", PODS, pod())
        api.ok("POST", "/api/v1/namespaces/default/bindings", binding("p"))
        assert api.get(f"{PODS}/p")["spec"]["nodeName"] == "n"

    async def test_tells_the_pod_where_its_node_is(self) -> None:
        api = Api()
        there = node()
        there["metadata"]["labels"] = {"topology.kubernetes.io/zone": "z", "other": "o"}
        api.ok("POST", NODES, there)
        api.ok("POST", PODS, pod())
        api.ok("POST", f"{PODS}/p/binding", binding("p"))
        assert api.get(f"{PODS}/p")["metadata"]["labels"] == {"topology.kubernetes.io/zone": "z"}


class TestAPod:
    async def test_keeps_its_spec(self) -> None:
        api = Api()
        api.ok("POST", PODS, pod())
        for change in ({"nodeName": "n"}, {"schedulerName": "s"}, {"nodeSelector": {"a": "b"}}):
            status, _, message = api.refused("PATCH", f"{PODS}/p", {"spec": change}, media=MERGE)
            assert status == 422
            assert "pod updates may not change fields other than" in message

    async def test_may_change_in_a_few_ways(self) -> None:
        api = Api()
        api.ok("POST", PODS, pod())
        for change in (
            {"containers": [{"name": "main", "image": "other"}]},
            {"activeDeadlineSeconds": 60},
            {"activeDeadlineSeconds": 30},
            {"tolerations": [{"key": "a", "operator": "Exists"}]},
        ):
            api.ok("PATCH", f"{PODS}/p", {"spec": change}, media=STRATEGIC)
        changed = api.get(f"{PODS}/p")
        assert changed["metadata"]["generation"] == 5
        assert len(changed["spec"]["tolerations"]) == 3
        assert api.refused("PATCH", f"{PODS}/p", {"spec": {"activeDeadlineSeconds": 40}}, media=MERGE)[0] == 422

    async def test_loses_gates_but_gets_no_new_ones(self) -> None:
        api = Api()
        api.ok("POST", PODS, pod(schedulingGates=[{"name": GATE}, {"name": "other"}]))
        more = {"spec": {"schedulingGates": [{"name": "new"}]}}
        message = api.refused("PATCH", f"{PODS}/p", more, media=STRATEGIC)[2]
        assert "only deletion is allowed, but found new scheduling gate 'new'" in message
        for gate in (GATE, "other"):
            without = {"spec": {"schedulingGates": [{"$patch": "delete", "name": gate}]}}
            api.ok("PATCH", f"{PODS}/p", without, media=STRATEGIC)
        assert "schedulingGates" not in api.get(f"{PODS}/p")["spec"]

    async def test_may_be_told_more_about_its_node_while_it_is_gated(self) -> None:
        api = Api()
        api.ok("POST", PODS, pod(schedulingGates=[{"name": GATE}]))
        api.ok("PATCH", f"{PODS}/p", {"spec": {"nodeSelector": {"a": "b"}}}, media=MERGE)
        assert api.refused("PATCH", f"{PODS}/p", {"spec": {"nodeSelector": {"a": "c"}}}, media=MERGE)[0] == 422

    async def test_has_its_status_by_another_path(self) -> None:
        api = Api()
        made = api.ok("POST", PODS, pod())
        assert api.ok("PATCH", f"{PODS}/p", {"status": {"phase": "Running"}}, media=MERGE) == made
        patch = {"status": {"phase": "Running", "qosClass": None}, "spec": {"nodeName": "n"}}
        changed = api.ok("PATCH", f"{PODS}/p/status", patch, media=MERGE)
        assert changed["status"] == {"phase": "Running", "qosClass": "BestEffort"}
        assert "nodeName" not in changed["spec"]


class TestTheEnd:
    async def test_of_a_pod_that_no_node_has_comes_at_once(self) -> None:
        api = Api()
        api.ok("POST", PODS, pod())
        last = api.ok("DELETE", f"{PODS}/p")
        assert last["metadata"]["deletionGracePeriodSeconds"] == 0
        assert api.refused("GET", f"{PODS}/p")[0] == 404

    async def test_of_a_bound_pod_is_waited_for(self) -> None:
        api = Api()
        api.ok("POST", PODS, pod())
        api.ok("POST", f"{PODS}/p/binding", binding("p"))
        going = api.ok("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 20})["metadata"]
        assert (going["deletionGracePeriodSeconds"], going["deletionTimestamp"]) == (20, "2026-01-01T00:00:20Z")
        await asyncio.sleep(5)
        same = api.ok("DELETE", f"{PODS}/p?gracePeriodSeconds=60")["metadata"]
        assert same["deletionGracePeriodSeconds"] == 20
        sooner = api.ok("DELETE", f"{PODS}/p?gracePeriodSeconds=10")["metadata"]
        assert (sooner["deletionGracePeriodSeconds"], sooner["deletionTimestamp"]) == (10, "2026-01-01T00:00:10Z")
        api.ok("DELETE", f"{PODS}/p?gracePeriodSeconds=0")
        assert api.refused("GET", f"{PODS}/p")[0] == 404

    async def test_of_a_finished_pod_comes_at_once(self) -> None:
        api = Api()
        api.ok("POST", PODS, pod())
        api.ok("POST", f"{PODS}/p/binding", binding("p"))
        api.ok("PATCH", f"{PODS}/p/status", {"status": {"phase": "Succeeded"}}, media=MERGE)
        api.ok("DELETE", f"{PODS}/p")
        assert api.refused("GET", f"{PODS}/p")[0] == 404

    async def test_by_eviction_respects_budgets(self) -> None:
        api = Api()
        budgets = DISRUPTION_BUDGET.path("default")
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}
        api.ok("POST", budgets, {"metadata": {"name": "d"}, "spec": spec})
        api.ok("POST", PODS, pod(labels={"a": "b"}))
        api.ok("POST", f"{PODS}/p/binding", binding("p"))
        running = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
        api.ok("PATCH", f"{PODS}/p/status", running, media=STRATEGIC)
        evict = {"metadata": {"name": "p"}, "deleteOptions": {}}
        assert api.ask("POST", f"{PODS}/p/eviction", evict)[1]["details"]["retryAfterSeconds"] == 10
        counted = {"status": {"observedGeneration": 1, "currentHealthy": 1, "desiredHealthy": 1}}
        api.ok("PATCH", f"{budgets}/d/status", counted, media=MERGE)
        status, answer = api.ask("POST", f"{PODS}/p/eviction", evict)
        assert status == 429
        why = "The disruption budget d needs 1 healthy pods and has 1 currently"
        assert answer["details"]["causes"] == [{"reason": "DisruptionBudget", "message": why}]
        api.ok("PATCH", f"{budgets}/d/status", {"status": {"disruptionsAllowed": 1}}, media=MERGE)
        api.ok("POST", f"{PODS}/p/eviction", evict)
        assert api.get(f"{PODS}/p")["metadata"]["deletionTimestamp"]
        assert api.get(f"{budgets}/d")["status"]["disruptionsAllowed"] == 0

    async def test_by_eviction_needs_the_right_pod(self) -> None:
        api = Api()
        api.ok("POST", PODS, pod())
        other = {"metadata": {"name": "p"}, "deleteOptions": {"preconditions": {"uid": "0"}}}
        assert api.refused("POST", f"{PODS}/p/eviction", other)[:2] == (409, "Conflict")
        assert api.refused("POST", f"{PODS}/q/eviction", {"metadata": {"name": "q"}})[0] == 404


class TestANode:
    async def test_can_be_created_with_its_status(self) -> None:
        made = Api().ok("POST", NODES, node(cpu="4000m", memory="1024Mi"))
        assert made["status"]["capacity"] == {"cpu": "4", "memory": "1Gi"}
        assert made["status"]["allocatable"] == made["status"]["capacity"]

    async def test_says_its_amounts_by_merge_and_json_patches_of_its_status(self) -> None:
        api = Api()
        api.ok("POST", NODES, node(cpu="4"))
        amounts = {"escher.dev/a.b": "2000"}
        api.ok("PATCH", f"{NODES}/n/status", {"status": {"capacity": amounts, "allocatable": amounts}}, media=MERGE)
        assert api.get(f"{NODES}/n")["status"]["capacity"] == {"cpu": "4", "escher.dev/a.b": "2k"}
        add = [{"op": "add", "path": "/status/capacity/escher.dev~1c", "value": "3"}]
        api.ok("PATCH", f"{NODES}/n/status", add, media=JSON_PATCH)
        without = {"status": {"capacity": {"escher.dev/a.b": None, "never": None}}}
        api.ok("PATCH", f"{NODES}/n/status", without, media=MERGE)
        assert api.get(f"{NODES}/n")["status"]["capacity"] == {"cpu": "4", "escher.dev/c": "3"}

    async def test_has_whole_units_of_what_is_not_kubernetes_own(self) -> None:
        api = Api()
        api.ok("POST", NODES, node(cpu="4"))
        patch = {"status": {"capacity": {"escher.dev/a": "1.5"}}}
        status, _, message = api.refused("PATCH", f"{NODES}/n/status", patch, media=MERGE)
        assert status == 422
        assert 'status.capacity.escher.dev/a: Invalid value: "1500m": must be an integer' in message

    async def test_keeps_status_and_spec_apart(self) -> None:
        api = Api()
        api.ok("POST", NODES, node(cpu="4"))
        api.ok(
            "PATCH", f"{NODES}/n", {"status": {"capacity": {"cpu": "9"}}, "spec": {"unschedulable": True}}, media=MERGE
        )
        api.ok("PATCH", f"{NODES}/n/status", {"spec": {"unschedulable": False}}, media=MERGE)
        found = api.get(f"{NODES}/n")
        assert (found["status"]["capacity"]["cpu"], found["spec"]["unschedulable"]) == ("4", True)

    async def test_has_each_taint_once(self) -> None:
        api = Api()
        api.ok("POST", NODES, node())
        taint = {"key": "a", "effect": "NoSchedule"}
        api.ok("PATCH", f"{NODES}/n", {"spec": {"taints": [taint]}}, media=STRATEGIC)
        assert (
            "taints must be unique"
            in api.refused("PATCH", f"{NODES}/n", {"spec": {"taints": [taint, taint]}}, media=MERGE)[2]
        )
