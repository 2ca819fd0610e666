"""Asks: what a pod says afterwards, what two of them come to, and what cannot be met."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes import client as kubernetes

from escher_k8s import Ask, AsyncEscher, Contradiction, Escher

MARK = {"escher.dev/managed": "0"}
ESCHER = Escher(namespace="team-a")


def pod(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "x"}], **spec}}


def test_a_gangs_member_says_all_that_makes_it_one() -> None:
    ask = ESCHER.gang("train", size=8, each={"cpu": "4"}, timeout_seconds=20, gated=True)
    made = ask.attach(pod())
    assert made["metadata"]["labels"] == {"escher.dev/gang": "train"}
    assert made["metadata"]["annotations"] == {
        "escher.dev/gang-min-member": "8",
        "escher.dev/gang-timeout-seconds": "20",
    }
    assert made["spec"]["schedulerName"] == "escher"
    assert made["spec"]["schedulingGates"] == [{"name": "escher.dev/gang"}]
    # The mark spares the API server putting it on.
    assert made["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "4", **MARK}, "limits": MARK}


def test_a_gang_may_leave_it_to_the_manifest_what_a_member_needs() -> None:
    has = {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}
    made = ESCHER.gang("train", 8).attach(pod(containers=[{"name": "main", "resources": has}]))
    marked = {amounts: {**said, **MARK} for amounts, said in has.items()}
    assert made["spec"]["containers"][0]["resources"] == marked


def test_a_resource_is_requested_and_limited_alike() -> None:
    made = ESCHER.resource_request("data1", 2).attach(pod())
    asked = {"escher.dev/team-a.data1": "2"}
    assert made["spec"]["containers"][0]["resources"] == {"requests": asked, "limits": asked}
    assert "schedulerName" not in made["spec"]
    assert ESCHER.resource_request("data1", shared=True).resources == {"escher.dev/data1": "1"}


def test_two_asks_become_one() -> None:
    both = ESCHER.gang("train", 8, {"cpu": "4"}) & ESCHER.resource_request("data1")
    assert both.resources == {"cpu": "4", "escher.dev/team-a.data1": "1"}
    assert both.subject == "gang 'train' of 8 and resource 'data1'"
    assert both.scheduler_name == "escher"


def policies_of(ask: Ask) -> str:
    """As the pod says it, which has all the annotations of the ask: so has one that is built by hand."""
    annotations = ask.attach(pod())["metadata"]["annotations"]
    assert ask.annotations.items() <= annotations.items()
    return ask.annotations["escher.dev/policy"]


def test_policies_are_named_by_annotation_and_make_one_ask() -> None:
    apart, near, even = (ESCHER.policy(name) for name in ("apart", "near", "even"))
    assert policies_of(apart) == "apart"
    assert policies_of(ESCHER.policy("apart", "near")) == policies_of(apart & near) == "apart,near"
    assert policies_of(near | apart) == "near|apart"
    assert policies_of((near | apart) & even) == "near,even|apart,even"
    assert policies_of((near | apart) & (even | apart)) == "near,even|near,apart|apart,even|apart"
    assert policies_of((near | apart) & ESCHER.gang("train", 8)) == "near|apart"
    made = (ESCHER.gang("train", 8) & apart).attach(pod())
    assert made["metadata"]["annotations"] == {"escher.dev/gang-min-member": "8", "escher.dev/policy": "apart"}
    assert made["spec"]["schedulerName"] == "escher"


def test_what_is_more_than_a_policy_is_no_choice() -> None:
    with pytest.raises(Contradiction, match="gang 'train' of 8 cannot be an alternative"):
        ESCHER.policy("apart") | ESCHER.gang("train", 8)
    with pytest.raises(Contradiction, match="'escher-ledger'"):
        ESCHER.policy("apart") & ESCHER.gang("train", 8, scheduler_name="escher-ledger")


def test_the_pod_that_was_given_stays_as_it_was() -> None:
    given = pod()
    before = copy.deepcopy(given)
    ESCHER.gang("train", 8, {"cpu": "4"}).attach(given)
    assert given == before


AN_ASK = st.builds(
    lambda subject, resources, labels, scheduler, gates: Ask(
        subject, "team-a", resources, labels, {}, scheduler, tuple(gates)
    ),
    st.sampled_from(["one", "other"]),
    st.dictionaries(st.sampled_from(["cpu", "memory", "x.io/y"]), st.sampled_from(["1", "2", "1000m"])),
    st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy")),
    st.sampled_from(["", "escher", "escher-ledger"]),
    st.sets(st.sampled_from("gh")),
)


@given(AN_ASK, AN_ASK)
def test_both_orders_come_to_the_same_pod_or_contradict_each_other_in_both(one: Ask, other: Ask) -> None:
    def made(order: Callable[[], Ask]) -> Any:
        try:
            said = order().attach(pod())
        except Contradiction as error:
            return error.field
        requests = said["spec"]["containers"][0]["resources"]["requests"]
        whole = {key: "1" if value == "1000m" else value for key, value in requests.items()}
        gates = sorted(each["name"] for each in said["spec"].get("schedulingGates", []))
        return said["metadata"], said["spec"].get("schedulerName"), whole, gates

    assert isinstance(made(lambda: one & other), str) == isinstance(made(lambda: other & one), str)
    if not isinstance(made(lambda: one & other), str):
        assert made(lambda: one & other) == made(lambda: other & one)


@given(AN_ASK)
def test_what_an_ask_has_said_once_it_may_say_again(ask: Ask) -> None:
    assert (ask & ask).attach(pod()) == ask.attach(ask.attach(pod())) == ask.attach(pod())


@pytest.mark.parametrize(
    ("asks", "said"),
    [
        (
            lambda: ESCHER.gang("train", 8) & ESCHER.gang("train", 9),
            r"annotations\['escher.dev/gang-min-member'\]: gang 'train' of 8 asks for '8', gang .* of 9 asks for '9'",
        ),
        (lambda: ESCHER.gang("a", 2) & ESCHER.gang("b", 2), r"labels\['escher.dev/gang'\]"),
        (lambda: ESCHER.gang("a", 2) & ESCHER.gang("a", 2, scheduler_name="escher-ledger"), "^schedulerName: .*ledger"),
        (lambda: ESCHER.gang("a", 2) & ESCHER.gang("a", 2, namespace="team-b"), "^namespace: .*'team-b'"),
        (
            lambda: ESCHER.resource_request("data1", 1) & ESCHER.resource_request("data1", 2),
            r"resources\['escher.dev/team-a.data1'\]",
        ),
    ],
)
def test_asks_that_contradict_each_other_are_refused_with_both_values(asks: Callable[[], Ask], said: str) -> None:
    with pytest.raises(Contradiction, match=said):
        asks()


def test_quantities_that_are_the_same_are_no_contradiction() -> None:
    both = ESCHER.gang("train", 8, {"cpu": "1"}) & ESCHER.gang("train", 8, {"cpu": "1000m"})
    assert both.resources == {"cpu": "1"}


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"metadata": {"namespace": "team-b"}}, "metadata.namespace"),
        ({"metadata": {"labels": {"escher.dev/gang": "other"}}}, "metadata.labels['escher.dev/gang']"),
        (
            {"metadata": {"annotations": {"escher.dev/gang-min-member": "3"}}},
            "metadata.annotations['escher.dev/gang-min-member']",
        ),
        ({"spec": {"schedulerName": "mine", "containers": [{}]}}, "spec.schedulerName"),
        (
            {"spec": {"containers": [{"resources": {"requests": {"cpu": "2"}}}]}},
            "spec.containers[0].resources.requests['cpu']",
        ),
        (
            {"spec": {"containers": [{"resources": {"limits": {"cpu": 2}}}]}},
            "spec.containers[0].resources.limits['cpu']",
        ),
    ],
)
def test_a_pod_that_says_something_else_already_is_refused(changed: dict[str, Any], field: str) -> None:
    with pytest.raises(Contradiction, match=r"the pod already has .*, but gang 'train' of 8 asks for") as refused:
        ESCHER.gang("train", 8, {"cpu": "4"}).attach({**pod(), **changed})
    assert refused.value.field == field


def test_a_pod_that_names_kubernetes_own_default_has_not_chosen_a_scheduler() -> None:
    made = ESCHER.gang("train", 8).attach(pod(schedulerName="default-scheduler"))
    assert made["spec"]["schedulerName"] == "escher"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ESCHER.gang("Train", 8), "gang 'Train'"),
        (lambda: ESCHER.gang("train", 0), "size is 0"),
        (lambda: ESCHER.gang("train", 8, {}), "has no resources"),
        (lambda: ESCHER.gang("train", 8, {"cpu": "much"}), "'much' is not a quantity"),
        (lambda: ESCHER.gang("train", 8, timeout_seconds=0), "timeout_seconds is 0"),
        (lambda: ESCHER.gang("train", 8, scheduler_name="escher-resources"), "see escher_k8s.esl"),  # type: ignore[arg-type]
        (lambda: ESCHER.resource_request("data1", 0), "units is 0"),
        (lambda: ESCHER.resource_request("data_1"), "data_1"),
    ],
)
def test_what_cannot_be_asked_for_is_told_with_its_value(make: Callable[[], Ask], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()


@pytest.mark.parametrize("names", [(), ("No Name",)])
def test_a_policy_has_a_name(names: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"names is empty|No Name"):
        ESCHER.policy(*names)


def test_both_clients_make_the_same_asks() -> None:
    assert AsyncEscher(namespace="team-a").gang("train", 8) == ESCHER.gang("train", 8)


# -- models of the `kubernetes` package


def model(**spec: Any) -> Any:
    containers = [kubernetes.V1Container(name="main", image="x"), kubernetes.V1Container(name="beside")]
    return kubernetes.V1Pod(
        metadata=kubernetes.V1ObjectMeta(name="p", labels={"app": "a"}),
        spec=kubernetes.V1PodSpec(containers=containers, **spec),
    )


FULL = (ESCHER.gang("train", 8, {"cpu": "4"}, gated=True), ESCHER.resource_request("data1"))


def spelt(pod: Any) -> Any:
    api: Any = kubernetes.ApiClient()
    return api.sanitize_for_serialization(pod)


def test_a_model_says_afterwards_what_a_manifest_would() -> None:
    ask = FULL[0] & FULL[1]
    given = model(scheduling_gates=[kubernetes.V1PodSchedulingGate(name="mine")])
    before = spelt(given)
    made = ask.attach(given)
    assert isinstance(made, kubernetes.V1Pod)
    assert spelt(made) == ask.attach(before)
    assert spelt(given) == before


def test_a_model_keeps_what_nobody_asked_about() -> None:
    claims = [kubernetes.CoreV1ResourceClaim(name="gpu")]
    given = model()
    given.spec.containers[0].resources = kubernetes.V1ResourceRequirements(limits={"cpu": "5"}, claims=claims)
    made = FULL[0].attach(given)
    assert made.spec.containers[0].resources.claims == claims
    assert made.spec.containers[0].resources.limits == {"cpu": "5", **MARK}
    assert made.spec.containers[0].resources.requests == {"cpu": "4", **MARK}


def test_a_pod_template_is_a_pod_too_and_may_be_bare() -> None:
    bare: Any = kubernetes.V1PodTemplateSpec(
        spec=kubernetes.V1PodSpec(containers=[kubernetes.V1Container(name="main")])
    )
    made = FULL[0].attach(bare)
    assert made.metadata.labels == {"escher.dev/gang": "train"}
    assert made.spec.containers[0].resources.requests == {"cpu": "4", **MARK}
    assert FULL[0].attach(spelt(bare)) == spelt(made)


def test_a_models_contradictions_are_told_as_a_manifests() -> None:
    with pytest.raises(Contradiction, match=r"^spec\.schedulerName: the pod already has 'mine'"):
        FULL[0].attach(model(scheduler_name="mine"))
