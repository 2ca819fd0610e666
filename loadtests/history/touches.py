"""Touches: what the service has written to others, by the audit log and the fields' managers.

It may write in `trials`, and its domain's keys in nodes' status; all else is a finding. `dumps` compares the content.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from loadtests.history.scene import TRIALS, VETERANS
from loadtests.shared.pods import Json
from loadtests.shared.reading import OURS

SERVICE = "escher"
"""Its user name at the API server, and its name as a manager of fields."""
_OF_ITS_OWN = frozenset({"escher.dev", "authentication.k8s.io", "authorization.k8s.io"})
"""API groups without objects of others, or without stored objects."""

Writes = Counter[str]


class Touches:
    """`heard` takes audit events. `found`: writes that were not the service's to make.

    `writes`: how many of its writes succeeded, for example of `pods/binding`."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.writes: Writes = Counter()

    def heard(self, event: Json) -> None:
        if (event.get("user") or {}).get("username") != SERVICE or event.get("stage") != "ResponseComplete":
            return
        about = event.get("objectRef") or {}
        what = "/".join(filter(None, (about.get("resource"), about.get("subresource"))))
        if 200 <= (event.get("responseStatus") or {}).get("code", 0) < 300:
            self.writes[what] += 1
        # This includes refused writes: the service attempted them.
        if not _is_its_own(what, about, event):
            self.found.append(f"{event.get('verb')} {what} {about.get('namespace', '')}/{about.get('name', '')}")


def _is_its_own(what: str, about: Json, event: Json) -> bool:
    if about.get("apiGroup") in _OF_ITS_OWN or about.get("namespace") == TRIALS:
        return True
    if what == "nodes/status":
        return bool(event.get("verb") == "patch")
    if what == "events":
        # An Event about a gang that it has found, and that may be its own.
        said = event.get("requestObject") or {}
        return str((said.get("regarding") or {}).get("name", "")).startswith(VETERANS)
    return False


def names_the_service(dump: Mapping[str, Json]) -> bool:
    """Whether any field has the service as its manager; if none has, `managed` proves nothing."""
    return any(
        entry.get("manager") == SERVICE
        for each in dump.values()
        for entry in each["metadata"].get("managedFields") or ()
    )


def managed(dump: Mapping[str, Json]) -> list[str]:
    """Fields of others' objects that have the service as their manager."""
    found = []
    for path, each in dump.items():
        if f"/namespaces/{TRIALS}/" in path or "/escher.dev/" in path:
            continue
        for entry in each["metadata"].get("managedFields") or ():
            if entry.get("manager") == SERVICE:
                fields = sorted(set(_leaves(entry.get("fieldsV1") or {})))
                found += [f"{path}: {where}" for where in fields if not _is_a_key_of_ours(path, where)]
    return found


def _is_a_key_of_ours(path: str, where: str) -> bool:
    return path.startswith("/api/v1/nodes/") and where.startswith(
        (f"f:status f:capacity f:{OURS}", f"f:status f:allocatable f:{OURS}")
    )


def _leaves(fields: Json, above: str = "") -> Iterable[str]:
    for key, below in fields.items():
        where = f"{above} {key}".strip()
        if below:
            yield from _leaves(below, where)
        elif key != ".":
            yield where
