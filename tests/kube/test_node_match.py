"""Which nodes would have a pod: kube-scheduler's rules on cordons, taints, selector and node affinity, as tables."""

from __future__ import annotations

import pytest

from extender.kube.node_match import Requirement, SelectorTerm, Taint, Toleration, accepts
from tests.builders import labels_term, names_term, node, pod, taint, toleration

UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
GPU = taint("gpu", "a100")


def test_a_plain_pod_goes_on_a_plain_node_whatever_its_size() -> None:
    assert accepts(node(has={}), pod(asks={"cpu": 10**9}))


@pytest.mark.parametrize(
    ("tolerations", "expected"),
    [
        ([], False),
        ([toleration(UNSCHEDULABLE, "Exists")], True),
        ([toleration(UNSCHEDULABLE, "Exists", effect="NoSchedule")], True),
        ([toleration(UNSCHEDULABLE, "Exists", effect="NoExecute")], False),
        ([toleration(UNSCHEDULABLE, "Equal", "")], True),
        ([toleration(UNSCHEDULABLE, "Equal", "true")], False),
        ([toleration("", "Exists")], True),
        ([toleration("other", "Exists")], False),
    ],
)
def test_a_cordoned_node_takes_only_pods_that_tolerate_its_taint(tolerations: list[Toleration], expected: bool) -> None:
    assert accepts(node(unschedulable=True), pod(tolerations=tuple(tolerations))) is expected


@pytest.mark.parametrize(
    ("taints", "tolerations", "expected"),
    [
        ([GPU], [], False),
        ([taint("gpu", "a100", "NoExecute")], [], False),
        ([taint("gpu", "a100", "PreferNoSchedule")], [], True),
        ([GPU], [toleration("gpu", "Equal", "a100")], True),
        ([GPU], [toleration("gpu", "", "a100")], True),
        ([GPU], [toleration("gpu", "Equal", "h100")], False),
        ([GPU], [toleration("cpu", "Equal", "a100")], False),
        ([GPU], [toleration("gpu", "Exists")], True),
        ([GPU], [toleration("gpu", "Exists", effect="NoSchedule")], True),
        ([GPU], [toleration("gpu", "Exists", effect="NoExecute")], False),
        ([GPU], [toleration("", "Exists")], True),
        ([GPU], [toleration("", "Equal", "a100")], True),
        ([GPU], [toleration("gpu", "exists")], False),
        ([GPU, taint("b")], [toleration("gpu", "Exists")], False),
        ([GPU, taint("b")], [toleration("gpu", "Exists"), toleration("b", "Exists")], True),
        ([taint("mem", "64")], [toleration("mem", "Gt", "32")], True),
        ([taint("mem", "64")], [toleration("mem", "Gt", "64")], False),
        ([taint("mem", "64")], [toleration("mem", "Lt", "65")], True),
        ([taint("mem", "64")], [toleration("mem", "Lt", "64")], False),
        ([taint("mem", "-1")], [toleration("mem", "Lt", "0")], True),
        ([taint("mem", str(-(2**63)))], [toleration("mem", "Lt", "0")], True),
        ([taint("mem", str(-(2**63) - 1))], [toleration("mem", "Lt", "0")], False),
        ([taint("mem", "064")], [toleration("mem", "Gt", "32")], False),
        ([taint("mem", "64")], [toleration("mem", "Gt", "+32")], False),
        ([taint("mem", "64")], [toleration("mem", "Lt", str(2**63))], False),
        ([taint("mem", "٦٤")], [toleration("mem", "Gt", "32")], False),
    ],
)
def test_every_taint_that_repels_must_be_tolerated(
    taints: list[Taint], tolerations: list[Toleration], expected: bool
) -> None:
    assert accepts(node(taints=tuple(taints)), pod(tolerations=tuple(tolerations))) is expected


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({"zone": "a"}, True),
        ({"zone": "b"}, False),
        ({"zone": "a", "disk": "ssd"}, False),
        ({"empty": ""}, True),
        ({"missing": ""}, False),
    ],
)
def test_a_node_selector_wants_every_label_with_its_value(selector: dict[str, str], expected: bool) -> None:
    assert accepts(node(labels={"zone": "a", "empty": ""}), pod(node_selector=selector)) is expected


@pytest.mark.parametrize(
    ("key", "operator", "values", "expected"),
    [
        ("zone", "In", ["a", "b"], True),
        ("zone", "In", ["b"], False),
        ("missing", "In", ["a"], False),
        ("zone", "In", [], False),
        ("empty", "In", [""], True),
        ("zone", "NotIn", ["b"], True),
        ("zone", "NotIn", ["a"], False),
        ("missing", "NotIn", ["a"], True),
        ("zone", "NotIn", [], False),
        ("zone", "NotIn", ["not a label value"], False),
        ("zone", "NotIn", ["x" * 64], False),
        ("zone", "Exists", [], True),
        ("missing", "Exists", [], False),
        ("zone", "Exists", ["a"], False),
        ("missing", "DoesNotExist", [], True),
        ("zone", "DoesNotExist", [], False),
        ("missing", "DoesNotExist", ["a"], False),
        ("cores", "Gt", ["7"], True),
        ("cores", "Gt", ["8"], False),
        ("cores", "Lt", ["9"], True),
        ("cores", "Lt", ["8"], False),
        ("cores", "Gt", ["007"], True),
        ("cores", "Gt", ["-5"], False),
        ("cores", "Gt", ["seven"], False),
        ("cores", "Gt", ["7", "8"], False),
        ("cores", "Gt", [], False),
        ("cores", "Gt", ["7.0"], False),
        ("cores", "Lt", [str(2**63)], False),
        ("cores", "Lt", [str(2**63 - 1)], True),
        ("zone", "Gt", ["7"], False),
        ("missing", "Lt", ["7"], False),
        ("zone", "in", ["a"], False),
        ("zone", "", ["a"], False),
    ],
)
def test_one_requirement_of_node_affinity(key: str, operator: str, values: list[str], expected: bool) -> None:
    labels = {"zone": "a", "cores": "8", "empty": ""}
    assert accepts(node(labels=labels), pod(affinity=(labels_term((key, operator, values)),))) is expected


ZONE_A = labels_term(("zone", "In", ["a"]))
ZONE_B = labels_term(("zone", "In", ["b"]))
UNREADABLE = labels_term(("zone", "Near", ["a"]))
NOTHING = SelectorTerm()


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ([ZONE_A], True),
        ([ZONE_B], False),
        ([ZONE_B, ZONE_A], True),
        ([labels_term(("zone", "In", ["a"]), ("disk", "Exists", []))], False),
        ([labels_term(("zone", "In", ["a"]), ("disk", "DoesNotExist", []))], True),
        ([NOTHING], False),
        ([NOTHING, ZONE_A], True),
        ([UNREADABLE], False),
        ([UNREADABLE, ZONE_A], True),
        ([names_term("In", "n1")], True),
        ([names_term("In", "n2")], False),
        ([names_term("NotIn", "n2")], True),
        ([names_term("NotIn", "n1")], False),
        ([names_term("In", "n1", "n2")], False),
        ([names_term("Exists")], False),
        ([SelectorTerm(fields=(Requirement("spec.unknown", "In", ("n1",)),))], False),
        ([SelectorTerm(fields=(Requirement("spec.unknown", "NotIn", ("n1",)),))], True),
        ([SelectorTerm(fields=(Requirement("spec.unknown", "In", ("",)),))], True),
        ([SelectorTerm(ZONE_A.labels, names_term("In", "n1").fields)], True),
        ([SelectorTerm(ZONE_B.labels, names_term("In", "n1").fields)], False),
        ([SelectorTerm(ZONE_A.labels, names_term("In", "n2").fields)], False),
    ],
)
def test_terms_are_ored_their_requirements_anded_and_an_empty_term_matches_nothing(
    terms: list[SelectorTerm], expected: bool
) -> None:
    assert accepts(node("n1", labels={"zone": "a"}), pod(affinity=tuple(terms))) is expected


def test_selector_affinity_and_taints_must_all_be_met() -> None:
    choosy = pod(node_selector={"zone": "a"}, affinity=(ZONE_A,), tolerations=(toleration("gpu", "Exists"),))
    assert accepts(node(labels={"zone": "a"}, taints=(GPU,)), choosy)
    assert not accepts(node(labels={"zone": "a"}, taints=(GPU, taint("b"))), choosy)
    assert not accepts(node(labels={"zone": "b"}, taints=(GPU,)), choosy)
