"""Workloads: the pod templates in owners of pods, and how many members of a gang run at once.

A Job, CronJob, JobSet, StatefulSet, Deployment, ReplicaSet: as a dict in Kubernetes' spelling, or as a model. A pod, or
a template alone, is its own template.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from escher_k8s.errors import Contradiction
from escher_k8s.pods import Manifest, is_model, spelt
from extender.core.gang_ask import GANG_LABEL

W = TypeVar("W")
Path = tuple[str | int, ...]
_TEMPLATE: Path = ("spec", "template")
_JOB: Path = ("spec", "jobTemplate")
_PATHS: Mapping[str, Path] = {
    **dict.fromkeys(("Job", "StatefulSet", "Deployment", "ReplicaSet", "ReplicationController"), _TEMPLATE),
    "CronJob": _JOB + _TEMPLATE,
    "PodTemplate": ("template",),
}
_JOB_SET = "JobSet"
_KNOWN = f"a pod, a pod template, or a {', '.join([*_PATHS, _JOB_SET])}"
_OF_MODEL = re.compile(r"V\d+(?:(?:alpha|beta)\d+)?([A-Z]\w*)$")
"""A model's class is named after its version and kind."""


@dataclass(frozen=True, slots=True)
class Template:
    """A pod template within a workload. `path`: empty if it is the workload itself.

    `pods`: how many it has at once; None: unknown. `after`: the templates whose pods run before."""

    path: Path
    manifest: Manifest
    name: str = ""
    pods: int | None = None
    after: frozenset[str] = frozenset()

    def field(self, name: str) -> str:
        """The name of a field of the template, seen from the workload."""
        return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in (*self.path, name))[1:]


def templates(workload: object, only: str | Collection[str] | None = None) -> list[Template]:
    """Its templates; `only`: of a JobSet, these replicatedJobs. Raises TypeError, ValueError."""
    if not isinstance(workload, Mapping) and not is_model(workload):
        raise TypeError(f"a {type(workload).__name__} is not a pod; give a dict in Kubernetes' spelling, or a model")
    said, kind = spelt(workload), _kind(workload)
    if kind == "DaemonSet":
        raise TypeError("a DaemonSet has a pod on each node, bound there by name: there is nothing to ask for")
    if kind.endswith("List") or "items" in said:
        raise TypeError(f"a {kind or 'List'} has several objects; attach the ask to each of its items")
    if kind == _JOB_SET:
        return _chosen(_of_job_set(said), only)
    if only is not None:
        raise ValueError(f"only is {only!r}; it chooses replicatedJobs of a JobSet, and this is a {kind or 'pod'}")
    if (path := _PATHS.get(kind)) is not None:
        return [Template(path, _template(said, path, kind), pods=_pods(kind, said))]
    if not _has_containers(said):
        of_no_kind = "write its kind, or " if not kind and "template" in (said.get("spec") or {}) else ""
        raise TypeError(f"a {kind or 'dict'} without spec.containers is not a pod; {of_no_kind}give {_KNOWN}")
    return [Template((), said)]


def with_templates(workload: W, changes: Sequence[tuple[Template, Callable[[Any], Any]]]) -> W:
    """A copy of the workload with these templates changed, in the same form."""
    made: Any = copy.deepcopy(dict(workload) if isinstance(workload, Mapping) else workload)
    for template, change in changes:
        if not template.path:
            return change(made)  # type: ignore[no-any-return]
        within = made
        for step in template.path[:-1]:
            within = _at(within, step)
        last = template.path[-1]
        changed = change(_at(within, last))
        if is_model(within):
            setattr(within, _attribute(within, str(last)), changed)
        else:
            within[last] = changed
    return made  # type: ignore[no-any-return]


def require_enough(workload: object, gang: str, quorum: int, others: int) -> None:
    """Raises Contradiction, with advice, if `quorum` members (with `others`) cannot run at once."""
    if isinstance(others, bool) or not isinstance(others, int) or others < 0:
        raise ValueError(f"others is {others!r}; write a whole number, 0 or more")
    kind, wanted = _kind(workload), quorum - others
    if wanted <= 1 or kind not in {*_PATHS, _JOB_SET} - {"PodTemplate"}:
        return
    spec = spelt(workload)["spec"]
    if kind == "StatefulSet" and (spec.get("podManagementPolicy") or "OrderedReady") == "OrderedReady":
        raise Contradiction(
            "spec.podManagementPolicy",
            f"a StatefulSet creates each pod only after the one before is ready, but gang {gang!r} places "
            f"{quorum} together; write 'Parallel'",
        )
    if kind == "CronJob" and (spec.get("concurrencyPolicy") or "Allow") == "Allow":
        raise Contradiction(
            "spec.concurrencyPolicy",
            f"runs of a CronJob may overlap, and their pods would be members of the same gang {gang!r}; write 'Forbid' "
            "or 'Replace'",
        )
    most = _at_once([each for each in templates(workload) if _may_be_of(gang, each)])
    # With 0 replicas, the workload is to grow later, and no pod waits until then.
    if most is not None and 0 < most < wanted:
        where, what = _sizes(kind)
        elsewhere = f", {others} of them from other workloads," if others else ""
        raise Contradiction(
            where,
            f"the {kind} has at most {most} pod{'' if most == 1 else 's'} at once, but gang {gang!r} places {quorum}"
            f"{elsewhere} together or none; {what}, ask for a gang of {most + others}, or set `others=` if members "
            "come from other workloads",
        )


def _may_be_of(gang: str, template: Template) -> bool:
    labels = (template.manifest.get("metadata") or {}).get("labels") or {}
    return bool(labels.get(GANG_LABEL, gang) == gang)


def _at_once(there: Sequence[Template]) -> int | None:
    """The most pods of these templates that can exist while none has been placed yet."""
    names = {each.name for each in there}
    found = 0
    for each in there:
        if each.pods is None:
            return None
        if not each.after & names:
            found += each.pods
    return found


def _sizes(kind: str) -> tuple[str, str]:
    """The field with the number of pods, and what to do about it."""
    if kind == _JOB_SET:
        return "spec.replicatedJobs", "raise their replicas or parallelism, let them start together"
    if kind in ("Job", "CronJob"):
        path = ".".join(str(each) for each in (*_PATHS[kind][:-1], "parallelism"))
        return path, "raise parallelism, and completions with it"
    return "spec.replicas", "raise replicas"


# -- reading the workload


def _kind(workload: object) -> str:
    if isinstance(workload, Mapping):
        return str(workload.get("kind") or "")
    named = _OF_MODEL.search(type(workload).__name__)
    return str(getattr(workload, "kind", None) or (named.group(1) if named else type(workload).__name__))


def _of_job_set(said: Manifest) -> list[Template]:
    spec = said.get("spec") or {}
    jobs = spec.get("replicatedJobs") or []
    if not jobs:
        raise TypeError("a JobSet without spec.replicatedJobs has no pod template")
    in_order = (spec.get("startupPolicy") or {}).get("startupPolicyOrder") == "InOrder"
    found: list[Template] = []
    for number, job in enumerate(jobs):
        path: Path = ("spec", "replicatedJobs", number, "template", *_TEMPLATE)
        before = {str(each.get("name")) for each in job.get("dependsOn") or []}
        if in_order:
            before |= {each.name for each in found}
        pods = int(_or(job.get("replicas"), 1)) * _parallel(job["template"].get("spec") or {})
        name = str(job.get("name", ""))
        found.append(Template(path, _template(said, path, "JobSet"), name, pods, frozenset(before)))
    return found


def _chosen(there: list[Template], only: str | Collection[str] | None) -> list[Template]:
    if only is None:
        return there
    names = [only] if isinstance(only, str) else list(only)
    known = [each.name for each in there]
    if not names or (missing := [name for name in names if name not in known]):
        lacking = missing[0] if names else ""
        raise ValueError(f"only names {lacking!r}, and the JobSet's replicatedJobs are {', '.join(known)}")
    return [each for each in there if each.name in names]


def _template(said: Manifest, path: Path, kind: str) -> Manifest:
    found: Any = said
    for step in path:
        try:
            found = found[step]
        except (KeyError, IndexError, TypeError):
            found = None
            break
    if not isinstance(found, dict) or not _has_containers(found):
        where = Template(path, {}).field("spec.containers")
        raise TypeError(f"a {kind} without {where} has no pod template")
    return found


def _has_containers(said: Manifest) -> bool:
    spec = said.get("spec")
    return isinstance(spec, Mapping) and bool(spec.get("containers"))


def _pods(kind: str, said: Manifest) -> int | None:
    """How many pods it has at once, with the API server's defaults."""
    if kind == "PodTemplate":
        return None
    spec = said["spec"]
    if kind == "CronJob":
        return _parallel(spec["jobTemplate"]["spec"])
    return _parallel(spec) if kind == "Job" else int(_or(spec.get("replicas"), 1))


def _parallel(spec: Mapping[str, Any]) -> int:
    parallelism = int(_or(spec.get("parallelism"), 1))
    return min(parallelism, int(_or(spec.get("completions"), parallelism)))


def _or(value: Any, otherwise: int) -> Any:
    return otherwise if value is None else value


def _at(within: Any, step: str | int) -> Any:
    return getattr(within, _attribute(within, str(step))) if is_model(within) else within[step]


def _attribute(model: Any, key: str) -> str:
    spellings: Mapping[str, str] = model.attribute_map
    return next(attribute for attribute, spelling in spellings.items() if spelling == key)
