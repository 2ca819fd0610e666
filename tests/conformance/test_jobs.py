"""Jobs: their pods, their ends, and what is deleted with them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.site import EXTENDER, NOBODY, Json, Site, condition
from tests.controlplane.deadline import eventually


def job(
    site: Site,
    name: str = "work",
    *,
    scheduler: str = EXTENDER,
    run_seconds: float | None = None,
    grace: int = 0,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> Json:
    pod = site.pod("unused", scheduler, run_seconds=run_seconds, grace=grace)
    metadata = {
        "labels": {**pod["metadata"]["labels"], **(labels or {})},
        "annotations": {**pod["metadata"]["annotations"], **(annotations or {})},
    }
    template = {"metadata": metadata, "spec": pod["spec"]}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {**spec, "template": template}}
    return site.api.post(site.jobs_at(), body)


def until_pods(site: Site, count: int) -> list[Json]:
    eventually(lambda: len(site.pods()) == count, what=f"{count} pods")
    return list(site.pods().values())


def until_complete(site: Site, name: str = "work") -> Json:
    def complete() -> bool:
        return condition(site.api.get(site.jobs_at(name)), "Complete").get("status") == "True"

    eventually(complete, what="the Job's completion", within=30)
    return site.api.get(site.jobs_at(name))


def test_a_job_gets_its_defaults(site: Site) -> None:
    made = job(site, scheduler=NOBODY)
    spec = made["spec"]
    assert (spec["parallelism"], spec["completions"], spec["backoffLimit"]) == (1, 1, 6)
    assert (spec["completionMode"], spec["suspend"]) == ("NonIndexed", False)
    uid = made["metadata"]["uid"]
    assert spec["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert spec["template"]["metadata"]["labels"] == {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": "work",
        "controller-uid": uid,
        "job-name": "work",
    }


def test_its_pods_are_its_own(site: Site) -> None:
    made = job(site, scheduler=NOBODY, parallelism=3, completions=3, labels={"app": "x"})
    for each in until_pods(site, 3):
        meta = each["metadata"]
        assert meta["name"].startswith("work-")
        assert meta["labels"]["batch.kubernetes.io/job-name"] == meta["labels"]["job-name"] == "work"
        assert meta["labels"]["batch.kubernetes.io/controller-uid"] == made["metadata"]["uid"]
        assert meta["labels"]["app"] == "x"
        assert meta["ownerReferences"] == [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": "work",
                "uid": made["metadata"]["uid"],
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]
    eventually(lambda: site.api.get(site.jobs_at("work"))["status"].get("active") == 3, what="three active")


def test_indexed_pods_know_their_index(site: Site) -> None:
    job(site, scheduler=NOBODY, parallelism=3, completions=3, completionMode="Indexed")
    key = "batch.kubernetes.io/job-completion-index"
    pods = until_pods(site, 3)
    assert sorted(each["metadata"]["annotations"][key] for each in pods) == ["0", "1", "2"]
    for each in pods:
        index = each["metadata"]["annotations"][key]
        assert each["metadata"]["labels"][key] == index
        assert each["metadata"]["name"].startswith(f"work-{index}-")
        assert each["spec"]["hostname"] == f"work-{index}"
        [variable] = each["spec"]["containers"][0]["env"]
        assert variable["name"] == "JOB_COMPLETION_INDEX"


def test_it_completes_when_its_pods_have(site: Site) -> None:
    site.node()
    job(site, run_seconds=0.2, parallelism=2, completions=2)
    done = until_complete(site)
    assert done["status"]["succeeded"] == 2
    assert done["status"]["startTime"] <= done["status"]["completionTime"]
    assert "active" not in done["status"]
    assert {each["status"]["phase"] for each in site.pods().values()} == {"Succeeded"}


def test_no_more_run_at_once_than_may(site: Site) -> None:
    site.node()
    job(site, run_seconds=0.1, parallelism=1, completions=3)
    most = 0

    def complete() -> bool:
        nonlocal most
        unfinished = [each for each in site.pods().values() if each["status"].get("phase") not in ("Succeeded", None)]
        most = max(most, len(unfinished))
        return condition(site.api.get(site.jobs_at("work")), "Complete").get("status") == "True"

    eventually(complete, what="the Job's completion", within=40)
    assert most == 1
    assert len(site.pods()) == 3


def test_a_pod_that_is_lost_is_made_anew(site: Site) -> None:
    job(site, scheduler=NOBODY)
    [first] = until_pods(site, 1)
    site.api.delete(site.pods_at(first["metadata"]["name"]), gracePeriodSeconds=0)

    def anew() -> bool:
        return [each["metadata"]["uid"] for each in site.pods().values()] not in ([], [first["metadata"]["uid"]])

    eventually(anew, what="another pod", within=40)


def evict_its_pod(site: Site, **annotations: str) -> None:
    """A Job that bears no failure has one pod, which runs and is evicted."""
    given = {f"escher.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    job(site, scheduler=NOBODY, backoffLimit=0, annotations=given, grace=30)
    [pod] = until_pods(site, 1)
    name = pod["metadata"]["name"]
    site.bind(name, "node-0")
    site.until_phase(name, "Running")
    evicted = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    site.api.post(site.pods_at(name, "eviction"), evicted)


@pytest.mark.parametrize("annotations", [{}, {"stop_seconds": "4", "stop_exit_code": "0"}], ids=["at once", "slowly"])
def test_a_pod_that_is_evicted_uses_the_limit_of_failures_up(site: Site, annotations: dict[str, str]) -> None:
    """However well it ends, if it takes its time: it counts as failed because it is being deleted."""
    evict_its_pod(site, **annotations)

    def failed() -> bool:
        return condition(site.api.get(site.jobs_at("work")), "Failed").get("status") == "True"

    eventually(failed, what="the Job's failure", within=40)
    done = site.api.get(site.jobs_at("work"))
    assert condition(done, "Failed")["reason"] == "BackoffLimitExceeded"
    assert done["status"]["failed"] == 1
    until_pods(site, 0)


def test_a_pod_that_is_evicted_and_ends_well_at_once_has_done_its_work(site: Site) -> None:
    evict_its_pod(site, stop_exit_code="0")
    assert until_complete(site)["status"]["succeeded"] == 1
    until_pods(site, 0)


def test_pods_that_end_for_their_jobs_sake_are_no_failures(site: Site) -> None:
    job(site, scheduler=NOBODY, backoffLimit=0, parallelism=2, completions=2, grace=30)
    for each in until_pods(site, 2):
        site.bind(each["metadata"]["name"], "node-0")
        site.until_phase(each["metadata"]["name"], "Running")
    site.api.patch(site.jobs_at("work"), {"spec": {"suspend": True}})
    until_pods(site, 0)
    site.api.patch(site.jobs_at("work"), {"spec": {"suspend": False}})
    until_pods(site, 2)
    status = site.api.get(site.jobs_at("work"))["status"]
    assert "failed" not in status
    assert condition({"status": status}, "Failed") == {}


def test_its_pods_go_with_it(site: Site) -> None:
    job(site, scheduler=NOBODY, parallelism=2, completions=2)
    until_pods(site, 2)
    site.api.delete(site.jobs_at("work"), propagationPolicy="Background")
    assert site.raw("GET", site.jobs_at("work")).status_code == 404
    until_pods(site, 0)


def test_its_pods_go_before_it(site: Site) -> None:
    job(site, scheduler=NOBODY, parallelism=2, completions=2)
    until_pods(site, 2)
    site.api.delete(site.jobs_at("work"), propagationPolicy="Foreground")
    eventually(lambda: site.raw("GET", site.jobs_at("work")).status_code == 404, what="the end of the Job")
    assert site.pods() == {}


def test_its_pods_stay_when_nobody_says_what_becomes_of_them(site: Site) -> None:
    job(site, scheduler=NOBODY)
    [pod] = until_pods(site, 1)
    name = pod["metadata"]["name"]
    site.api.delete(site.jobs_at("work"))
    eventually(lambda: site.raw("GET", site.jobs_at("work")).status_code == 404, what="the end of the Job")
    eventually(lambda: "ownerReferences" not in site.read(name)["metadata"], what="a pod without owner")


def test_a_suspended_job_has_no_pods_until_it_is_resumed(site: Site) -> None:
    job(site, scheduler=NOBODY, suspend=True)
    eventually(lambda: condition(site.api.get(site.jobs_at("work")), "Suspended").get("status") == "True")
    assert site.settles(site.pods, during=0.4) == {}
    site.api.patch(site.jobs_at("work"), {"spec": {"suspend": False}})
    until_pods(site, 1)


def test_the_pods_of_a_job_are_a_gang(site: Site) -> None:
    site.nodes(2, cpu=1)
    labels, annotations = {"escher.dev/gang": "train"}, {"escher.dev/gang-min-member": "3"}
    job(site, parallelism=3, completions=3, run_seconds=0.2, labels=labels, annotations=annotations)
    members = [each["metadata"]["name"] for each in until_pods(site, 3)]
    site.until_rejected(*members)
    assert site.bound() == {}
    site.node(cpu=1)
    until_complete(site)
