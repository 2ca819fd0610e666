"""Pods and nodes are read as kube-scheduler reads them; what is senseless is refused, and named."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from extender.adapters.translation.objects import to_node, to_pod
from extender.core import cluster
from extender.core.affinity.constraints import AffinityTerm, Constraints, HostPort, Peers, Spread
from extender.core.cluster import Owner
from extender.core.gang_ask import GangAsk, MalformedAsk
from extender.core.names import GangKey
from extender.kube import objects
from extender.kube.label_match import LabelRequirement
from extender.kube.node_match import Requirement, SelectorTerm, Taint, Toleration
from extender.kube.pod_requests import UnreadableObject
from extender.kube.quantities import parse_quantity
from tests.adapters.kubernetes import manifests

Json = dict[str, Any]

_IDENTITY = {"name": "p1", "namespace": "team-a", "uid": "u1"}
_NOBODY = {"kind": "Job", "name": "train", "uid": "u1", "controller": False}


def read_pod(manifest: Json) -> cluster.Pod:
    return to_pod(msgspec.json.decode(json.dumps(manifest), type=objects.Pod), 5.0)


def read_node(manifest: Json) -> cluster.Node:
    return to_node(msgspec.json.decode(json.dumps(manifest), type=objects.Node))


def requests_of(**spec: Any) -> dict[str, int]:
    status = spec.pop("status", {})
    manifest = manifests.pod()
    manifest["spec"] = {"containers": [], **spec}
    manifest["status"] = status
    return {str(resource): units for resource, units in read_pod(manifest).requests.items()}


def container(requests: Json | None = None, limits: Json | None = None, **more: Any) -> Json:
    resources = {"requests": requests} if requests is not None else {}
    return {"name": "c", **more, "resources": resources | ({"limits": limits} if limits is not None else {})}


class TestRequests:
    def test_add_up_over_containers_and_count_one_pod(self) -> None:
        asked = requests_of(containers=[container({"cpu": "1", "memory": "1Gi"}), container({"cpu": "500m"})])
        assert asked == {"cpu": 1500, "memory": 2**30, "pods": 1}

    def test_are_the_limits_where_only_these_are_set(self) -> None:
        asked = requests_of(containers=[container({"cpu": "1"}, {"cpu": "2", "escher.dev/team-a.d": "3"})])
        assert asked == {"cpu": 1000, "escher.dev/team-a.d": 3, "pods": 1}

    def test_are_nothing_of_what_has_kube_scheduler_call_us(self) -> None:
        asked = requests_of(containers=[container(limits={"escher.dev/managed": "1", "escher.dev/team-a.d": "3"})])
        assert asked == {"escher.dev/team-a.d": 3, "pods": 1}

    def test_of_nothing_are_left_out(self) -> None:
        assert requests_of(containers=[container({"cpu": "0", "memory": 0}), {"name": "bare"}]) == {"pods": 1}

    def test_of_init_containers_count_one_at_a_time(self) -> None:
        asked = requests_of(
            containers=[container({"cpu": "1"})],
            initContainers=[container({"cpu": "3"}), container({"cpu": "2", "memory": "5"})],
        )
        assert asked == {"cpu": 3000, "memory": 5, "pods": 1}

    def test_of_sidecars_count_beside_everything_started_after_them(self) -> None:
        sidecar = container({"cpu": "1"}, restartPolicy="Always")
        before = requests_of(containers=[container({"cpu": "1"})], initContainers=[container({"cpu": "4"}), sidecar])
        after = requests_of(containers=[container({"cpu": "1"})], initContainers=[sidecar, container({"cpu": "4"})])
        assert (before["cpu"], after["cpu"]) == (4000, 5000)

    def test_include_the_overhead(self) -> None:
        asked = requests_of(containers=[container({"cpu": "1"})], overhead={"cpu": "250m", "memory": "10"})
        assert asked == {"cpu": 1250, "memory": 10, "pods": 1}

    def test_of_the_whole_pod_replace_the_containers(self) -> None:
        asked = requests_of(
            containers=[container({"cpu": "1", "memory": "7", "escher.dev/x": "1"})],
            resources={"requests": {"cpu": "3", "escher.dev/x": "9"}},
            overhead={"cpu": "1"},
        )
        assert asked == {"cpu": 4000, "memory": 7, "escher.dev/x": 1, "pods": 1}

    def test_of_the_whole_pod_may_come_from_its_limits(self) -> None:
        asked = requests_of(
            containers=[container({"cpu": "1"})],
            resources={"limits": {"cpu": "3", "memory": "8", "hugepages-2Mi": "4Mi"}},
        )
        assert asked == {"cpu": 1000, "memory": 8, "hugepages-2Mi": 4 * 2**20, "pods": 1}

    def test_during_a_resize_are_the_largest_of_asked_promised_and_in_force(self) -> None:
        reported = {"name": "c", "resources": {"requests": {"cpu": "2"}}, "allocatedResources": {"memory": "3"}}
        conditions = [{"type": "Ready"}, {"type": "PodResizePending", "reason": "Infeasible"}]
        spec = {"containers": [container({"cpu": "4", "memory": "1"})]}
        assert requests_of(**spec, status={"containerStatuses": [reported]}) == {"cpu": 4000, "memory": 3, "pods": 1}
        infeasible = requests_of(**spec, status={"containerStatuses": [reported], "conditions": conditions})
        assert infeasible == {"cpu": 2000, "memory": 3, "pods": 1}

    def test_during_a_resize_heed_the_status_of_sidecars_and_not_of_other_init_containers(self) -> None:
        reported = {"name": "c", "resources": {"requests": {"cpu": "9"}}}
        status = {"initContainerStatuses": [reported], "conditions": [{"type": "Ready"}]}
        sidecar = requests_of(initContainers=[container({"cpu": "1"}, restartPolicy="Always")], status=status)
        plain = requests_of(initContainers=[container({"cpu": "1"})], status=status)
        assert (sidecar["cpu"], plain["cpu"]) == (9000, 1000)

    def test_of_the_whole_pod_during_a_resize(self) -> None:
        asked = requests_of(
            resources={"requests": {"cpu": "1", "memory": "5"}},
            status={"resources": {"requests": {"cpu": "2"}}, "allocatedResources": {"cpu": "3"}},
        )
        assert asked == {"cpu": 3000, "memory": 5, "pods": 1}

    @pytest.mark.parametrize(
        ("quantity", "cpu", "memory"),
        [
            ("1e3", 1_000_000, 1000), ("0.5", 500, 1), ("1Ei", 2**60 * 1000, 2**60), ("100u", 1, 1), (2, 2000, 2),
            (0.25, 250, 1), ("8Ei", (2**63 - 1), 2**63 - 1), ("1.5Gi", 3 * 2**29 * 1000, 3 * 2**29),
        ],
    )  # fmt: skip
    def test_understand_every_spelling(self, quantity: str | float, cpu: int, memory: int) -> None:
        asked = requests_of(containers=[container({"cpu": quantity, "memory": quantity})])
        assert asked == {"cpu": min(cpu, 2**63 - 1), "memory": memory, "pods": 1}

    @pytest.mark.parametrize("quantity", ["-1", "1x", "", "1 Gi", "0x10", "NaN", "1" * 99, "١"])
    def test_that_cannot_be_counted_are_refused_and_named(self, quantity: str) -> None:
        with pytest.raises(UnreadableObject) as caught:
            requests_of(containers=[container({"cpu": "1"}), container({"memory": "1", "cpu": quantity})])
        assert caught.value.field == "spec.containers[1].resources.requests[cpu]"
        assert caught.value.value == quantity
        assert str(caught.value).startswith("spec.containers[1].resources.requests[cpu]: ")

    def test_are_one_object_for_pods_that_look_alike(self) -> None:
        first, second = read_pod(manifests.pod("p1")), read_pod(manifests.pod("p2"))
        assert first.requests is second.requests

    def test_of_a_thousand_resources_are_counted(self) -> None:
        many = {f"escher.dev/team-a.r{number}": str(number + 1) for number in range(1000)}
        assert len(requests_of(containers=[container(many)])) == 1001


quantities = st.one_of(
    st.integers(0, 64).map(str),
    st.integers(0, 5000).map(lambda n: f"{n}m"),
    st.sampled_from(["1Gi", "1.5", "0", "2k", "3e2", "0.1", "7Mi"]),
)
amounts = st.dictionaries(st.sampled_from(["cpu", "memory", "hugepages-2Mi", "escher.dev/a.b"]), quantities)
containers = st.builds(container, st.none() | amounts, st.none() | amounts)
init_containers = st.builds(
    lambda made, sidecar: made | ({"restartPolicy": "Always"} if sidecar else {}), containers, st.booleans()
)


def slow_requests(spec: Json) -> dict[str, int]:
    """The twin: what the pod needs at each moment of its life, written down moment by moment, in exact fractions."""

    def asked(each: Json) -> dict[str, Fraction]:
        whole = {**each["resources"].get("limits", {}), **each["resources"].get("requests", {})}
        return {resource: Fraction(math.ceil(parse_quantity(text) * 1000), 1000) for resource, text in whole.items()}

    names = ["cpu", "memory", "hugepages-2Mi", "escher.dev/a.b"]
    moments: list[list[Json]] = []
    sidecars: list[Json] = []
    for each in spec["initContainers"]:
        moments.append([*sidecars, each])
        if each.get("restartPolicy") == "Always":
            sidecars.append(each)
    moments.append([*sidecars, *spec["containers"]])
    peak = {
        name: max(sum(asked(each).get(name, Fraction()) for each in moment) for moment in moments) for name in names
    }
    for name, text in spec["resources"].get("requests", {}).items():
        if name != "escher.dev/a.b":
            peak[name] = Fraction(math.ceil(parse_quantity(text) * 1000), 1000)
    for name, text in spec["overhead"].items():
        peak[name] += Fraction(math.ceil(parse_quantity(text) * 1000), 1000)
    units = {name: math.ceil(value * 1000 if name == "cpu" else value) for name, value in peak.items()}
    return {name: number for name, number in units.items() if number} | {"pods": 1}


@settings(max_examples=3 * settings().max_examples)
@given(
    st.fixed_dictionaries(
        {
            "containers": st.lists(containers, max_size=3),
            "initContainers": st.lists(init_containers, max_size=4),
            "overhead": amounts,
            "resources": st.fixed_dictionaries({}, optional={"requests": amounts}),
        }
    )
)
def test_requests_equal_their_slow_twin(spec: Json) -> None:
    assert requests_of(**spec) == slow_requests(spec)


class TestPod:
    def test_is_reduced_to_what_a_decision_needs(self) -> None:
        manifest = manifests.pod(
            nodeName="n7",
            priority=100,
            nodeSelector={"disk": "ssd"},
            tolerations=[{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}, {"operator": "Exists"}],
            affinity={
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {
                                "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}],
                                "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}],
                            },
                            {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]},
                        ]
                    }
                },
                "podAffinity": {},
            },
        )
        manifest["metadata"]["ownerReferences"] = [
            {"kind": "Node", "name": "n1", "uid": "u0"},
            {"kind": "Job", "name": "train", "uid": "u1", "controller": True},
        ]
        pod = read_pod(manifest)
        assert (str(pod), pod.uid, pod.node, pod.scheduler, pod.priority) == (
            "team-a/p1", "uid-p1", "n7", "escher", 100,
        )  # fmt: skip
        assert pod.created == 1795240800.0
        assert pod.owner == Owner("Job", "train", "u1")
        assert pod.node_selector == {"disk": "ssd"}
        assert pod.tolerations == (Toleration("gpu", "Exists", "", "NoSchedule"), Toleration("", "Exists"))
        assert pod.affinity == (
            SelectorTerm((Requirement("zone", "In", ("a", "b")),), (Requirement("metadata.name", "NotIn", ("n1",)),)),
            SelectorTerm((Requirement("gpu", "Exists"),)),
        )
        assert not pod.deleting
        assert not pod.finished
        assert pod.bound_at == pod.created

    def test_was_bound_when_its_condition_says_so(self) -> None:
        manifest = manifests.pod(nodeName="n7")
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-21T06:00:02Z"}
        manifest["status"] = {"conditions": [{"type": "Ready", "status": "True"}, scheduled]}
        assert read_pod(manifest).bound_at == 1795240802.0

    def test_was_bound_before_it_was_started_and_after_it_was_created_where_its_condition_does_not_say_so(self) -> None:
        """kube-scheduler writes that the pod is not scheduled when it took the Binding for failed and it was not."""
        manifest = manifests.pod(nodeName="n7")
        unscheduled = {"type": "PodScheduled", "status": "False", "lastTransitionTime": "2026-11-21T06:00:01Z"}
        manifest["status"] = {"conditions": [unscheduled], "startTime": "2026-11-21T06:00:03Z"}
        assert read_pod(manifest).bound_at == 1795240803.0
        manifest["status"] = {"conditions": [unscheduled]}
        assert read_pod(manifest).bound_at == read_pod(manifest).created > 0
        assert read_pod(manifests.pod()).bound_at == 0

    @pytest.mark.parametrize(
        ("gates", "gated", "at_our_gate"),
        [
            ([], False, False),
            (["queue"], True, False),
            (["escher.dev/gang"], False, True),
            (["queue", "escher.dev/gang"], True, True),
        ],
    )
    def test_with_scheduling_gates_waits_for_others_or_for_us(
        self, gates: list[str], gated: bool, at_our_gate: bool
    ) -> None:
        labelled = manifests.pod(schedulingGates=[{"name": name} for name in gates])
        labelled["metadata"]["labels"] = {"escher.dev/gang": "train"}
        labelled["metadata"]["annotations"] = {"escher.dev/gang-min-member": "2"}
        pod = read_pod(labelled)
        assert (pod.gated, pod.at_our_gate) == (gated, at_our_gate)
        assert isinstance(pod.gang, GangAsk)

    def test_of_no_gang_at_our_gate_is_told_what_to_do(self) -> None:
        """Nobody would ever let it through."""
        ask = read_pod(manifests.pod(schedulingGates=[{"name": "escher.dev/gang"}])).gang
        assert isinstance(ask, MalformedAsk)
        assert (ask.field, ask.value) == ("spec.schedulingGates", "escher.dev/gang")
        assert "is in no gang" in ask.reason
        assert "remove the gate" in ask.remedy
        assert read_pod(manifests.pod(schedulingGates=[{"name": "queue"}])).gang is None

    def test_preempts_unless_its_policy_says_never(self) -> None:
        assert read_pod(manifests.pod()).preempts
        assert read_pod(manifests.pod(preemptionPolicy="PreemptLowerPriority")).preempts
        assert not read_pod(manifests.pod(preemptionPolicy="Never")).preempts

    @pytest.mark.parametrize("affinity", [{}, {"nodeAffinity": {}}, {"podAffinity": {}}, None])
    def test_without_required_node_affinity_goes_anywhere(self, affinity: Json | None) -> None:
        assert read_pod(manifests.pod(affinity=affinity)).affinity == ()

    def test_with_required_affinity_and_no_term_goes_nowhere(self) -> None:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": None}}
        assert read_pod(manifests.pod(affinity={"nodeAffinity": required})).affinity == (SelectorTerm(),)

    @pytest.mark.parametrize(("phase", "finished"), [("Running", False), ("Succeeded", True), ("Failed", True)])
    def test_has_finished_when_its_phase_says_so(self, phase: str, finished: bool) -> None:
        assert read_pod(manifests.pod() | {"status": {"phase": phase}}).finished is finished

    def test_without_status_and_with_nulls_is_an_ordinary_pod(self) -> None:
        manifest = manifests.pod(nodeName=None, priority=None, tolerations=None, nodeSelector=None, initContainers=None)
        manifest["metadata"] |= {
            "labels": None, "annotations": None, "creationTimestamp": None, "ownerReferences": [{**_NOBODY}],
        }  # fmt: skip
        del manifest["status"]
        del manifest["spec"]["schedulerName"]
        pod = read_pod(manifest)
        assert (pod.node, pod.created, pod.owner, pod.scheduler) == (None, 0.0, None, "")

    def test_that_is_being_deleted_says_so(self) -> None:
        manifest = manifests.pod()
        manifest["metadata"]["deletionTimestamp"] = "2026-11-21T07:00:00Z"
        assert read_pod(manifest).deleting

    def test_asks_for_its_gang(self) -> None:
        manifest = manifests.pod()
        manifest["metadata"] |= {
            "labels": {"escher.dev/gang": "train"}, "annotations": {"escher.dev/gang-min-member": "8"},
        }  # fmt: skip
        assert read_pod(manifest).gang == GangAsk(GangKey("team-a", "train"), 8, 4.5)
        manifest["metadata"]["annotations"]["escher.dev/gang-min-member"] = "many"
        assert isinstance(read_pod(manifest).gang, MalformedAsk)

    def test_asks_for_its_controllers_gang(self) -> None:
        manifest = manifests.pod()
        manifest["metadata"] |= {
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u1", "controller": True}
            ],
            "annotations": {"escher.dev/gang-min-member": "8"},
        }
        assert read_pod(manifest).gang == GangAsk(GangKey("team-a", "job.train", "batch", "u1"), 8, 4.5)

    @pytest.mark.parametrize("field", ["name", "namespace", "uid"])
    def test_without_identity_is_refused(self, field: str) -> None:
        manifest = manifests.pod()
        manifest["metadata"][field] = ""
        with pytest.raises(UnreadableObject, match=f"metadata.{field}: is empty"):
            read_pod(manifest)
        del manifest["metadata"][field]
        with pytest.raises(msgspec.ValidationError, match=field):
            read_pod(manifest)

    @pytest.mark.parametrize("manifest", [{}, {"Metadata": {}, "Spec": {}}, {"metadata": {}}, {"metadata": _IDENTITY}])
    def test_in_another_spelling_is_refused(self, manifest: Json) -> None:
        with pytest.raises(msgspec.ValidationError, match="missing required field"):
            read_pod(manifest)


class TestNode:
    def test_is_reduced_to_what_a_decision_needs(self) -> None:
        manifest = manifests.node(allocatable={"cpu": "7500m", "memory": "1Ki", "escher.dev/a.b": "0"})
        manifest["spec"] = {"unschedulable": True, "taints": [{"key": "gpu", "effect": "NoSchedule", "value": "x"}]}
        node = read_node(manifest)
        assert (node.name, node.uid, node.unschedulable) == ("n1", "uid-n1", True)
        assert node.allocatable == {"cpu": 7500, "memory": 1024, "escher.dev/a.b": 0}
        assert node.capacity == {"cpu": 8000, "memory": 32 * 2**30, "pods": 110}
        assert node.labels == {"zone": "z1"}
        assert node.taints == (Taint("gpu", "x", "NoSchedule"),)

    def test_with_nothing_but_a_name_offers_nothing(self) -> None:
        node = read_node({"metadata": {"name": "n1"}})
        assert (node.allocatable, node.capacity, node.labels, node.taints) == ({}, {}, {}, ())

    def test_keeps_what_can_be_counted_and_says_once_what_cannot(self) -> None:
        with capture_logs() as logs:
            for name in ("n1", "n2"):
                node = read_node(manifests.node(name, allocatable={"cpu": "4", "escher.dev/odd": "-3.7"}))
                assert node.allocatable == {"cpu": 4000}
        assert [log["resource"] for log in logs] == ["escher.dev/odd"]

    def test_without_a_name_is_refused(self) -> None:
        with pytest.raises(UnreadableObject, match=r"metadata\.name"):
            read_node({"metadata": {"name": ""}})
        with pytest.raises(msgspec.ValidationError, match="name"):
            read_node({"metadata": {"Name": "n1"}})

    def test_shares_its_vectors_with_nodes_that_look_alike(self) -> None:
        first, second = read_node(manifests.node("n1")), read_node(manifests.node("n2"))
        assert first.allocatable is second.allocatable is first.capacity


@pytest.mark.parametrize(
    ("status", "facts"),
    [
        ({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}, (True, False, False)),
        ({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}, (False, False, False)),
        ({"phase": "Pending"}, (False, True, False)),
        (
            {
                "phase": "Running",
                "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}],
            },
            (False, False, True),
        ),
        (
            {
                "phase": "Running",
                "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}],
            },
            (False, False, False),
        ),
    ],
)
def test_a_pod_is_ready_or_starting_or_preempted_as_its_status_says(status: Json, facts: tuple[bool, ...]) -> None:
    manifest = manifests.pod()
    manifest["status"] = status
    read = read_pod(manifest)
    assert (read.ready, read.starting, read.preempted) == facts


def test_a_pod_is_nominated_where_its_status_says() -> None:
    manifest = manifests.pod()
    assert read_pod(manifest).nominated is None
    manifest["status"] = {"phase": "Pending", "nominatedNodeName": "n1"}
    assert read_pod(manifest).nominated == "n1"


class TestConstraints:
    """What a pod requires of the pods around it, and what of its requirements nobody here can evaluate."""

    def read(self, **spec: Any) -> Constraints:
        manifest = manifests.pod(**spec)
        manifest["metadata"]["labels"] = {"app": "web", "rev": "7"}
        found = read_pod(manifest).constraints
        assert found is not None
        return found

    @staticmethod
    def required(kind: str, **term: Any) -> Json:
        preferred = [{"weight": 1, "podAffinityTerm": {"topologyKey": "other"}}]
        return {
            kind: {
                "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone", **term}],
                "preferredDuringSchedulingIgnoredDuringExecution": preferred,
            }
        }

    def test_an_ordinary_pod_has_none(self) -> None:
        spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
        ports = [{"name": "c", "ports": [{"containerPort": 80}]}]
        preferred: Json = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
        for spec in ({}, {"topologySpreadConstraints": [spread]}, {"containers": ports}, {"affinity": preferred}):
            pod = read_pod(manifests.pod(**spec))
            assert (pod.constraints, pod.unknown_asks) == (None, ())

    def test_equal_ones_are_one_object(self) -> None:
        affinity = self.required("podAffinity", labelSelector={"matchLabels": {"app": "web"}})
        assert self.read(affinity=affinity) is self.read(affinity=affinity)

    def test_affinity_is_about_the_own_namespace_unless_it_names_others(self) -> None:
        selector = {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "rev", "operator": "Exists"}]}
        wanted = (LabelRequirement("app", "In", ("web",)), LabelRequirement("rev", "Exists"))
        [term] = self.read(affinity=self.required("podAffinity", labelSelector=selector)).affinity
        assert term == AffinityTerm(Peers(frozenset({"team-a"}), wanted), "zone")
        named = self.required("podAntiAffinity", labelSelector=selector, namespaces=["x", "y"])
        [term] = self.read(affinity=named).anti_affinity
        assert term == AffinityTerm(Peers(frozenset({"x", "y"}), wanted), "zone")

    def test_an_empty_namespace_selector_means_all_and_another_is_unknown(self) -> None:
        every = manifests.pod(affinity=self.required("podAffinity", namespaceSelector={}))
        pod = read_pod(every)
        assert pod.constraints is not None
        assert pod.constraints.affinity[0].peers == Peers(None, None)
        assert pod.unknown_asks == ()
        some = {"matchLabels": {"team": "a"}}
        pod = read_pod(manifests.pod(affinity=self.required("podAntiAffinity", namespaceSelector=some)))
        assert pod.constraints is not None
        assert pod.constraints.anti_affinity[0].peers == Peers(frozenset(), None)
        assert pod.unknown_asks == ("pod affinity with a namespace selector",)

    def test_label_keys_stand_for_the_pods_own_labels(self) -> None:
        keys = {"matchLabelKeys": ["rev", "absent"], "mismatchLabelKeys": ["app"]}
        [term] = self.read(affinity=self.required("podAffinity", labelSelector={}, **keys)).affinity
        rev, app = LabelRequirement("rev", "In", ("7",)), LabelRequirement("app", "NotIn", ("web",))
        assert term.peers.selector == (rev, app)

    def test_spread(self) -> None:
        least = {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
        all_of_it = least | {
            "minDomains": 3,
            "nodeAffinityPolicy": "Ignore",
            "nodeTaintsPolicy": "Honor",
            "matchLabelKeys": ["rev"],
        }
        first, second = self.read(topologySpreadConstraints=[least, all_of_it]).spread
        assert first == Spread(Peers(frozenset({"team-a"}), ()), "zone", 2, 1, True, False)
        rev = (LabelRequirement("rev", "In", ("7",)),)
        assert second == Spread(Peers(frozenset({"team-a"}), rev), "zone", 2, 3, False, True)

    def test_host_ports_of_containers_that_go_on_running(self) -> None:
        ports = [{"hostPort": 80, "containerPort": 8080}, {"containerPort": 9090}]
        dns = [{"hostPort": 53, "protocol": "UDP", "hostIP": "10.0.0.1", "containerPort": 53}]
        sidecar = {"name": "s", "restartPolicy": "Always", "ports": dns}
        init = {"name": "i", "ports": [{"hostPort": 1, "containerPort": 1}]}
        containers = [{"name": "c", "ports": ports}]
        found = self.read(containers=containers, initContainers=[sidecar, init]).host_ports
        assert found == (HostPort(80), HostPort(53, "UDP", "10.0.0.1"))
        on_host = self.read(containers=containers, hostNetwork=True).host_ports
        assert on_host == (HostPort(80), HostPort(9090))

    @pytest.mark.parametrize(
        ("spec", "unknown"),
        [
            ({"volumes": [{"name": "v", "emptyDir": {}}]}, ()),
            ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}, ("volume claims",)),
            ({"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}]}, ("volume claims",)),
            ({"volumes": [{"name": "v", "rbd": {}}]}, ("disks that one node at a time may mount",)),
            ({"resourceClaims": [{"name": "gpu"}]}, ("resource claims",)),
        ],
    )
    def test_what_nobody_here_can_evaluate_is_named(self, spec: Json, unknown: tuple[str, ...]) -> None:
        assert read_pod(manifests.pod(**spec)).unknown_asks == unknown
