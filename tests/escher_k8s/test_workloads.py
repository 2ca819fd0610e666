"""Asks attached to what makes pods: every template says what a pod would, and what can never be together is told."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kubernetes import client as kubernetes

from escher_k8s import Ask, Contradiction, Escher

MARK = {"escher.dev/managed": "0"}
ESCHER = Escher(namespace="team-a")
GANG = ESCHER.gang("train", size=2, each={"cpu": "4"})
Json = dict[str, Any]


def template(**metadata: Any) -> Json:
    said: Json = {"spec": {"containers": [{"name": "main", "image": "x"}]}}
    return {"metadata": metadata, **said} if metadata else said


def job(pods: int | None = 2, **more: Any) -> Json:
    parallel = {} if pods is None else {"parallelism": pods}
    return {"kind": "Job", "metadata": {"name": "j"}, "spec": {**parallel, "template": template(), **more}}


def replicated(kind: str, pods: int = 2, **more: Any) -> Json:
    selector: Json = {"app": "a"} if kind == "ReplicationController" else {"matchLabels": {"app": "a"}}
    spec = {"replicas": pods, "selector": selector, "template": template(), **more}
    return {"kind": kind, "metadata": {"name": "r"}, "spec": spec}


def cron_job(pods: int = 2, **more: Any) -> Json:
    inner = {"spec": job(pods)["spec"]}
    return {
        "kind": "CronJob",
        "spec": {"schedule": "@daily", "concurrencyPolicy": "Forbid", "jobTemplate": inner, **more},
    }


def job_set(jobs: Mapping[str, tuple[int, int]], **more: Any) -> Json:
    """By name how many jobs there are, and how many pods each has at once."""
    made = [
        {"name": name, "replicas": replicas, "template": {"spec": job(pods)["spec"]}}
        for name, (replicas, pods) in jobs.items()
    ]
    return {"kind": "JobSet", "metadata": {"name": "s"}, "spec": {"replicatedJobs": made, **more}}


PARALLEL: Json = {"podManagementPolicy": "Parallel"}
EVERY: Mapping[str, tuple[Json, Callable[[Any], Any]]] = {
    "Pod": ({"kind": "Pod", **template(name="p")}, lambda made: made),
    "template": (template(), lambda made: made),
    "PodTemplate": (
        {"kind": "PodTemplate", "metadata": {"name": "t"}, "template": template()},
        lambda made: made["template"],
    ),
    "Job": (job(), lambda made: made["spec"]["template"]),
    "CronJob": (cron_job(), lambda made: made["spec"]["jobTemplate"]["spec"]["template"]),
    "StatefulSet": (replicated("StatefulSet", **PARALLEL), lambda made: made["spec"]["template"]),
    "Deployment": (replicated("Deployment"), lambda made: made["spec"]["template"]),
    "ReplicaSet": (replicated("ReplicaSet"), lambda made: made["spec"]["template"]),
    "ReplicationController": (replicated("ReplicationController"), lambda made: made["spec"]["template"]),
}
MODELS: Mapping[str, Any] = {
    "DaemonSet": kubernetes.V1DaemonSet,
    "PodList": kubernetes.V1PodList,
    "Pod": kubernetes.V1Pod,
    "template": kubernetes.V1PodTemplateSpec,
    "PodTemplate": kubernetes.V1PodTemplate,
    "Job": kubernetes.V1Job,
    "CronJob": kubernetes.V1CronJob,
    "StatefulSet": kubernetes.V1StatefulSet,
    "Deployment": kubernetes.V1Deployment,
    "ReplicaSet": kubernetes.V1ReplicaSet,
    "ReplicationController": kubernetes.V1ReplicationController,
}
API: Any = kubernetes.ApiClient()


def as_model(kind: str, manifest: Json) -> Any:
    return MODELS[kind].from_dict(manifest)


def spelt(model: Any) -> Any:
    return API.sanitize_for_serialization(model)


@pytest.mark.parametrize("kind", EVERY)
def test_the_template_of_a_workload_says_what_a_pod_would(kind: str) -> None:
    manifest, inner = EVERY[kind]
    before = copy.deepcopy(manifest)
    made = GANG.attach(manifest)
    bare = {key: value for key, value in inner(manifest).items() if key != "kind"}
    assert {key: value for key, value in inner(made).items() if key != "kind"} == GANG.attach(bare)
    assert manifest == before
    assert GANG.attach(made) == made


AN_ASK = st.builds(
    lambda gang, resource, gated, policies: (
        ESCHER.gang(*gang, gated=gated)
        & (ESCHER.resource_request("data1", resource) if resource else ESCHER.policy(*policies))
    ),
    st.tuples(st.just("train"), st.integers(1, 2), st.sampled_from([None, {"cpu": "2"}, {"cpu": "1", "x.io/y": "1"}])),
    st.integers(0, 2),
    st.booleans(),
    st.lists(st.sampled_from(["apart", "near"]), min_size=1, unique=True),
)
A_TEMPLATE = st.builds(
    lambda labels, annotations, scheduler, resources, beside: {
        "metadata": {**({"labels": labels} if labels else {}), **({"annotations": annotations} if annotations else {})},
        "spec": {
            **({"schedulerName": scheduler} if scheduler else {}),
            "containers": [
                {"name": "main", **({"resources": resources} if resources else {})},
                *({"name": f"beside-{number}"} for number in range(beside)),
            ],
        },
    },
    st.dictionaries(st.sampled_from(["app", "escher.dev/gang"]), st.sampled_from(["train", "other"]), max_size=2),
    st.dictionaries(st.sampled_from(["note", "escher.dev/policy"]), st.sampled_from(["apart", "near,apart"])),
    st.sampled_from(["", "default-scheduler", "escher", "mine"]),
    st.sampled_from([{}, {"requests": {"cpu": "2"}}, {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}]),
    st.integers(0, 2),
)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(EVERY)), AN_ASK, A_TEMPLATE)
def test_a_manifest_and_a_model_come_to_the_same_or_to_the_same_refusal(kind: str, ask: Ask, inner: Json) -> None:
    manifest = copy.deepcopy(EVERY[kind][0])
    EVERY[kind][1](manifest).update(copy.deepcopy(inner))
    model = as_model(kind, manifest)
    before = spelt(model)

    def made(given: Any) -> Any:
        try:
            return spelt(ask.attach(given))
        except Contradiction as error:
            return str(error)

    by_manifest, by_model = made(before), made(model)
    assert by_model == by_manifest
    assert spelt(model) == before
    if not isinstance(by_manifest, str):
        assert made(by_manifest) == by_manifest
        assert made(as_model(kind, by_manifest)) == by_manifest
        assert isinstance(ask.attach(model), MODELS[kind])


@pytest.mark.parametrize(
    ("workload", "field"),
    [
        (job(template=template(labels={"escher.dev/gang": "other"})), "spec.template.metadata.labels"),
        (job(template={**template(), "spec": {"schedulerName": "mine", "containers": [{}]}}), "spec.template.spec"),
        ({**job(), "metadata": {"namespace": "team-b"}}, "metadata.namespace"),
        (job(template=template(namespace="team-b")), "spec.template.metadata.namespace"),
        (job(template=template(annotations={"escher.dev/policy": "near"})), "spec.template.metadata.annotations"),
        (job_set({"a": (1, 2)}), ""),
    ],
)
def test_what_a_template_says_already_is_told_where_it_stands(workload: Json, field: str) -> None:
    ask = GANG & ESCHER.policy("apart")
    if not field:
        workload["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["schedulerName"] = "mine"
        field = "spec.replicatedJobs[0].template.spec.template.spec.schedulerName"
    with pytest.raises(Contradiction, match=r"the pod already has .*") as refused:
        ask.attach(workload)
    assert refused.value.field.startswith(field)


# -- which of them


def schedulers(made: Json) -> list[str | None]:
    jobs = made["spec"]["replicatedJobs"]
    return [each["template"]["spec"]["template"]["spec"].get("schedulerName") for each in jobs]


def test_every_replicated_job_of_a_job_set_asks_or_those_that_are_chosen() -> None:
    given = job_set({"leader": (1, 1), "workers": (2, 4)})
    assert schedulers(GANG.attach(given)) == ["escher", "escher"]
    assert schedulers(GANG.attach(given, only="workers")) == [None, "escher"]
    assert schedulers(GANG.attach(given, only=["leader", "workers"])) == ["escher", "escher"]
    wrong: list[Any] = ["worker", []]
    for only in wrong:
        with pytest.raises(ValueError, match="the JobSet's replicatedJobs are leader, workers"):
            GANG.attach(given, only=only)
    with pytest.raises(ValueError, match="chooses replicatedJobs of a JobSet, and this is a Job"):
        GANG.attach(job(), only="workers")


def test_members_that_differ_get_an_ask_each_of_one_gang() -> None:
    given = job_set({"leader": (1, 1), "workers": (2, 4)})
    leader, worker = (ESCHER.gang("train", 9, {"cpu": cpu}) for cpu in ("1", "8"))
    made = worker.attach(leader.attach(given, only="leader"), only="workers")
    asked = [
        each["template"]["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
        for each in made["spec"]["replicatedJobs"]
    ]
    assert asked == [{"cpu": "1", **MARK}, {"cpu": "8", **MARK}]


@pytest.mark.parametrize(
    ("thing", "said"),
    [
        (3, "a int is not a pod"),
        ({"spec": {"template": template()}}, "write its kind"),
        ({"kind": "Service", "spec": {}}, "a Service without spec.containers is not a pod; give a pod, .* JobSet"),
        ({"kind": "Job", "spec": {}}, "a Job without spec.template.spec.containers"),
        ({"kind": "JobSet", "spec": {}}, "without spec.replicatedJobs"),
        (kubernetes.V1Job(), "a Job without spec.template.spec.containers"),
        (replicated("DaemonSet"), "a DaemonSet has a pod on each node"),
        (as_model("DaemonSet", replicated("DaemonSet")), "a DaemonSet has a pod on each node"),
        ({"kind": "List", "items": [job()]}, "attach the ask to each of its items"),
        (as_model("PodList", {"items": []}), "attach the ask to each of its items"),
    ],
)
def test_what_has_no_template_to_ask_by_is_told(thing: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        GANG.attach(thing)


# -- how many


@pytest.mark.parametrize(
    ("workload", "field", "said"),
    [
        (job(4), "spec.parallelism", r"the Job has at most 4 pods at once, but gang 'train' places 8 together or none"),
        (job(None), "spec.parallelism", "at most 1 pod at once"),
        (job(8, completions=3), "spec.parallelism", "at most 3 pods at once"),
        (cron_job(4), "spec.jobTemplate.spec.parallelism", "the CronJob has at most 4"),
        (cron_job(8, concurrencyPolicy="Allow"), "spec.concurrencyPolicy", "runs of a CronJob may overlap"),
        (replicated("Deployment", 7), "spec.replicas", "ask for a gang of 7"),
        (replicated("StatefulSet", 8), "spec.podManagementPolicy", "write 'Parallel'"),
        (replicated("StatefulSet", 4, **PARALLEL), "spec.replicas", "at most 4"),
        (job_set({"a": (1, 1), "b": (3, 2)}), "spec.replicatedJobs", "at most 7"),
        (
            job_set({"a": (2, 4), "b": (2, 4)}, startupPolicy={"startupPolicyOrder": "InOrder"}),
            "",
            None,
        ),
        (
            job_set({"a": (1, 4), "b": (2, 4)}, startupPolicy={"startupPolicyOrder": "InOrder"}),
            "spec.replicatedJobs",
            "at most 4 .* let them start together",
        ),
    ],
)
def test_a_gang_that_can_never_be_whole_is_told_with_what_to_do(workload: Json, field: str, said: str | None) -> None:
    gang = ESCHER.gang("train", 8)
    if said is None:
        assert schedulers(gang.attach(workload)) == ["escher", "escher"]
        return
    with pytest.raises(Contradiction, match=said) as refused:
        gang.attach(workload)
    assert refused.value.field == field


def test_jobs_that_wait_for_others_of_their_gang_do_not_count() -> None:
    given = job_set({"a": (1, 4), "b": (1, 4)})
    given["spec"]["replicatedJobs"][1]["dependsOn"] = [{"name": "a", "status": "Ready"}]
    with pytest.raises(Contradiction, match="at most 4"):
        ESCHER.gang("train", 8).attach(given)
    assert ESCHER.gang("train", 4).attach(given)
    other = given["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    other["metadata"] = {"labels": {"escher.dev/gang": "other"}}
    # Of another gang, it may be there before.
    assert schedulers(ESCHER.gang("train", 4).attach(given, only="b")) == [None, "escher"]


def test_members_from_elsewhere_are_counted_where_they_are_told_of() -> None:
    gang = ESCHER.gang("train", 8)
    assert gang.attach(job(4), others=4)
    with pytest.raises(Contradiction, match="places 8, 3 of them from other workloads, together"):
        gang.attach(job(4), others=3)
    assert gang.attach(replicated("StatefulSet", 1), others=7)
    for others in (-1, True):
        with pytest.raises(ValueError, match="others is"):
            gang.attach(job(8), others=others)


def test_more_pods_than_the_quorum_are_no_mistake_and_other_asks_mind_no_number() -> None:
    assert ESCHER.gang("train", 4).attach(job(8))
    assert ESCHER.gang("train", 1).attach(replicated("StatefulSet", 8))
    assert ESCHER.gang("train", 8).attach(replicated("Deployment", 0))
    assert ESCHER.policy("apart").attach(replicated("StatefulSet", 1))
    assert ESCHER.resource_request("data1").attach(cron_job(1, concurrencyPolicy="Allow"))


class JobsetV1alpha2JobSet:
    """As the client library that JobSet generates has it."""

    def __init__(self, spec: Any) -> None:
        self.openapi_types = {"kind": "str", "spec": "object"}
        self.attribute_map = {"kind": "kind", "spec": "spec"}
        self.kind, self.spec = None, spec


def test_models_of_other_libraries_are_told_by_their_names() -> None:
    given = JobsetV1alpha2JobSet(job_set({"a": (1, 2)})["spec"])
    given.spec["replicatedJobs"][0]["template"]["spec"]["template"] = kubernetes.V1PodTemplateSpec(
        spec=kubernetes.V1PodSpec(containers=[kubernetes.V1Container(name="main")])
    )
    made = GANG.attach(given)
    assert made.spec["replicatedJobs"][0]["template"]["spec"]["template"].spec.scheduler_name == "escher"
    assert given.spec["replicatedJobs"][0]["template"]["spec"]["template"].spec.scheduler_name is None
