"""DaemonSets: defaults and immutable fields. No controller creates their pods."""

from __future__ import annotations

from kubesim.apiserver.machinery.failures import FIELD_IMMUTABLE, Problem, missing, wrong
from kubesim.apiserver.machinery.selectors import of_label_selector
from kubesim.apiserver.validation import pods
from kubesim.apiserver.validation.neighbour_rules import selector_problems
from kubesim.kinds import Json, Kind

_COUNTS = ("currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady")
_UNLIKE = "`selector` does not match template `labels`"


def completed(daemon_set: Json) -> Json:
    spec = dict(daemon_set.get("spec") or {})
    template = dict(spec.get("template") or {})
    template["spec"] = pods.completed_spec(template.get("spec") or {}, template=True)
    template["metadata"] = {
        key: value for key, value in (template.get("metadata") or {}).items() if key != "creationTimestamp"
    }
    spec["template"] = template
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
    spec.setdefault("updateStrategy", rolling)
    spec.setdefault("revisionHistoryLimit", 10)
    return {**daemon_set, "spec": spec}


def of_new(kind: Kind, daemon_set: Json) -> tuple[Json, list[Problem]]:
    status = dict.fromkeys(_COUNTS, 0)
    return {**daemon_set, "status": status}, _problems(daemon_set["spec"])


def of_changed(new: Json, old: Json) -> tuple[Json, list[Problem]]:
    problems = _problems(new["spec"])
    if new["spec"].get("selector") != old["spec"].get("selector"):
        problems.append(wrong("spec.selector", new["spec"].get("selector"), FIELD_IMMUTABLE))
    return new, problems


def _problems(spec: Json) -> list[Problem]:
    selector, labels = spec.get("selector"), spec["template"]["metadata"].get("labels") or {}
    if selector is None:
        return [missing("spec.selector")]
    problems = selector_problems(selector, "spec.selector")
    if not problems and not of_label_selector(selector)(labels):
        problems.append(wrong("spec.template.metadata.labels", labels, _UNLIKE))
    return problems
