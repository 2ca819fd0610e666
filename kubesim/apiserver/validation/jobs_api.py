"""Jobs in the API server: defaults, generated selectors and immutable fields.

The controller `jobs` runs them.
"""

from __future__ import annotations

from kubesim.apiserver.machinery.failures import FIELD_IMMUTABLE, Problem, missing, unsupported, wrong
from kubesim.apiserver.validation import pods
from kubesim.apiserver.validation.pod_rules import problems_of_spec
from kubesim.kinds import Json, Kind

_UID, _NAME = "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"


def completed(job: Json) -> Json:
    spec = dict(job.get("spec") or {})
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    if spec.get("backoffLimitPerIndex") is None:
        spec.setdefault("backoffLimit", 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("podReplacementPolicy", "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed")
    spec.setdefault("manualSelector", False)
    template = dict(spec.get("template") or {})
    template["spec"] = pods.completed_spec(template.get("spec") or {}, template=True)
    template["metadata"] = {"creationTimestamp": None, **(template.get("metadata") or {})}
    template["metadata"].pop("creationTimestamp")
    spec["template"] = template
    labels = template["metadata"].get("labels")
    if labels and not job["metadata"].get("labels"):
        job = {**job, "metadata": {**job["metadata"], "labels": labels}}
    if job.get("status"):
        job = {**job, "status": pods.with_times(job["status"], "lastProbeTime", "lastTransitionTime")}
    return {**job, "spec": spec}


def of_new(kind: Kind, job: Json) -> tuple[Json, list[Problem]]:
    spec, meta = job["spec"], job["metadata"]
    if not spec["manualSelector"]:
        uid, name = meta["uid"], meta.get("name", "")
        generated = {_UID: uid, _NAME: name, "controller-uid": uid, "job-name": name}
        template = spec["template"]
        labels = {**(template["metadata"].get("labels") or {}), **generated}
        if meta.get("labels") == (template["metadata"].get("labels") or None):
            # The job's labels were copied from the template, so they stay equal to it.
            job = {**job, "metadata": {**meta, "labels": labels}} if meta.get("labels") else job
        template = {**template, "metadata": {**template["metadata"], "labels": labels}}
        spec = {**spec, "template": template, "selector": {"matchLabels": {_UID: uid}}}
    return {**job, "spec": spec, "status": {}}, _problems(spec)


def _problems(spec: Json) -> list[Problem]:
    problems: list[Problem] = []
    for key in ("parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"):
        if spec.get(key) is not None and spec[key] < 0:
            problems.append(wrong(f"spec.{key}", spec[key], "must be greater than or equal to 0"))
    if spec["completionMode"] not in ("NonIndexed", "Indexed"):
        problems.append(unsupported("spec.completionMode", spec["completionMode"], ("Indexed", "NonIndexed")))
    if spec["completionMode"] == "Indexed" and spec.get("completions") is None:
        problems.append(missing("spec.completions", "when completion mode is Indexed"))
    policy = spec["template"]["spec"].get("restartPolicy")
    if policy not in ("OnFailure", "Never"):
        where = "spec.template.spec.restartPolicy"
        if policy == "Always":
            problems.append(missing(where, 'valid values: "OnFailure", "Never"'))
        else:
            problems.append(unsupported(where, policy, ("OnFailure", "Never")))
    return problems + problems_of_spec(spec["template"]["spec"], "spec.template.spec")


def of_changed(new: Json, old: Json) -> tuple[Json, list[Problem]]:
    if new["spec"] is old["spec"] or new["spec"] == old["spec"]:
        return new, []
    problems: list[Problem] = []
    mine, theirs = new["spec"], old["spec"]
    suspended = theirs.get("suspend") and not (old.get("status") or {}).get("startTime")
    for key in ("completions", "selector", "completionMode", "template", "podFailurePolicy", "backoffLimitPerIndex"):
        if mine.get(key) == theirs.get(key):
            continue
        if key == "template" and suspended and _pinned(mine["template"]) == _pinned(theirs["template"]):
            continue
        elastic = mine.get("completionMode") == "Indexed" and mine.get("completions") == mine.get("parallelism")
        if key == "completions" and elastic:
            continue
        problems.append(wrong(f"spec.{key}", mine.get(key), FIELD_IMMUTABLE))
    return new, problems


def _pinned(template: Json) -> Json:
    """The template's fields fixed before a Job's first start: all but those of scheduling."""
    free = ("nodeSelector", "tolerations", "affinity", "schedulingGates")
    return {key: value for key, value in template["spec"].items() if key not in free}
