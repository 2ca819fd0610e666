"""Views: converts objects between the stored form and the forms of API versions.

Events are stored in the form of core v1; events.k8s.io/v1 renames their fields. A custom resource shows the version
that was requested.
"""

from __future__ import annotations

from kubesim.apiserver.machinery.failures import Problem, missing, wrong
from kubesim.kinds import EVENT, EVENTS, Json, Kind

_CORE_NAMES = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_NEW_NAMES = {core: new for new, core in _CORE_NAMES.items()}
_ALWAYS: Json = {
    "involvedObject": {},
    "source": {},
    "firstTimestamp": None,
    "lastTimestamp": None,
    "eventTime": None,
    "reportingComponent": "",
    "reportingInstance": "",
}
_LONGEST_NOTE = 1024
_LONGEST_WORD = 128


def inward(kind: Kind, obj: Json) -> Json:
    """An object of `kind` in its stored form."""
    if kind is EVENTS:
        obj = {_CORE_NAMES.get(key, key): value for key, value in obj.items()}
    if kind is EVENTS or kind is EVENT:
        return {**obj, "kind": EVENT.name, "apiVersion": EVENT.api_version, **_missing(obj)}
    return obj


def _missing(event: Json) -> Json:
    return {key: value for key, value in _ALWAYS.items() if key not in event}


def outward(kind: Kind, obj: Json) -> Json:
    """A stored object in the form of `kind`."""
    if kind is EVENTS:
        said = obj.items() if obj.get("reportingComponent") else _told(obj).items()
        renamed = {_NEW_NAMES.get(key, key): value for key, value in said}
        return {**renamed, "kind": EVENTS.name, "apiVersion": EVENTS.api_version}
    if kind.is_custom and obj["apiVersion"] != kind.api_version:
        return {**obj, "apiVersion": kind.api_version}
    return obj


def _told(event: Json) -> Json:
    """The event without empty fields about its reporter."""
    return {key: value for key, value in event.items() if value or not key.startswith("reporting")}


def event_problems(kind: Kind, event: Json) -> list[Problem]:
    """Errors of a new event that a request creates as `kind`; `event` is in stored form."""
    about, own = (event["involvedObject"] or {}).get("namespace") or "", event["metadata"].get("namespace")
    timed, newer = bool(event.get("eventTime")), kind is EVENTS
    problems: list[Problem] = []
    elsewhere = about != own if about or not timed else own not in ("default", "kube-system")
    if elsewhere and not (timed and about) and not (not about and own == "default"):
        problems.append(wrong("involvedObject.namespace", about, "does not match event.namespace"))
    if timed:
        problems += _told_problems(event, "reportingController" if newer else "reportingComponent")
    if newer:
        if not timed:
            problems.append(missing("eventTime"))
        if event.get("type") not in ("Normal", "Warning"):
            problems.append(wrong("type", "", f"has invalid value: {event.get('type') or ''}"))
        for key in ("firstTimestamp", "lastTimestamp", "count", "source"):
            if event.get(key):
                problems.append(wrong(key, "", "needs to be unset"))
    return problems


def _told_problems(event: Json, reporting: str) -> list[Problem]:
    problems: list[Problem] = []
    if not event.get("reportingComponent"):
        problems.append(missing(reporting))
    for key in ("reportingInstance", "action", "reason"):
        if not event.get(key):
            problems.append(missing(key))
        if len(event.get(key) or "") > _LONGEST_WORD:
            problems.append(wrong(key, "", f"can have at most {_LONGEST_WORD} characters"))
    if len((event.get("message") or "").encode()) > _LONGEST_NOTE:
        problems.append(wrong("message", "", f"can have at most {_LONGEST_NOTE} characters"))
    return problems
