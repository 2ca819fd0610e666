"""Definitions: CustomResourceDefinitions as objects, and the kinds that they define.

A kind is served while its definition is stored. When the definition is deleted, all objects of the kind are removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kubesim import kinds
from kubesim.apiserver.machinery.failures import Problem, missing, unsupported, wrong
from kubesim.apiserver.machinery.served import Served
from kubesim.apiserver.machinery.store import DELETED, Change, Store
from kubesim.apiserver.schemas.schema_rules import ready
from kubesim.kinds import CUSTOM_RESOURCE_DEFINITION, Json, Kind


def completed(definition: Json) -> Json:
    """The definition with default names and conversion."""
    spec = dict(definition.get("spec") or {})
    names = dict(spec.get("names") or {})
    if names.get("kind"):
        names.setdefault("listKind", f"{names['kind']}List")
        names.setdefault("singular", names["kind"].lower())
    spec["names"] = names
    spec.setdefault("conversion", {"strategy": "None"})
    return {**definition, "spec": spec}


def of_new(kind: Kind, definition: Json, stamp: str) -> tuple[Json, list[Problem]]:
    spec = definition["spec"]
    problems = _problems(definition)
    if problems:
        return definition, problems
    conditions = [
        {"type": of_type, "status": "True", "lastTransitionTime": stamp, "reason": reason, "message": message}
        for of_type, reason, message in (
            ("NamesAccepted", "NoConflicts", "no conflicts found"),
            ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        )
    ]
    stored = [version["name"] for version in spec["versions"] if version.get("storage")]
    status = {"conditions": conditions, "acceptedNames": spec["names"], "storedVersions": stored}
    return {**definition, "status": status}, []


def of_changed(new: Json, old: Json) -> tuple[Json, list[Problem]]:
    problems = _problems(new, old)
    for key in ("group", "scope"):
        if new["spec"].get(key) != old["spec"].get(key):
            problems.append(wrong(f"spec.{key}", new["spec"].get(key), "field is immutable"))
    return new, problems


def _problems(definition: Json, old: Json | None = None) -> list[Problem]:
    spec, name = definition["spec"], definition["metadata"].get("name", "")
    problems: list[Problem] = []
    plural, group = spec["names"].get("plural"), spec.get("group")
    if not group:
        problems.append(missing("spec.group"))
    if spec.get("scope") not in ("Namespaced", "Cluster"):
        problems.append(unsupported("spec.scope", spec.get("scope") or "", ("Cluster", "Namespaced")))
    for key in ("plural", "kind"):
        if not spec["names"].get(key):
            problems.append(missing(f"spec.names.{key}"))
    if plural and group and name != f"{plural}.{group}":
        problems.append(wrong("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
    versions = spec.get("versions") or []
    if sum(bool(version.get("storage")) for version in versions) != 1:
        why = "must have exactly one version marked as storage version"
        problems.append(wrong("spec.versions", versions, why))
    for at, version in enumerate(versions):
        if not version.get("name"):
            problems.append(missing(f"spec.versions[{at}].name"))
        if not _schema(version):
            problems.append(missing(f"spec.versions[{at}].schema.openAPIV3Schema", "schemas are required"))
    return [*problems, *_problems_of_schemas(versions, {} if old is None else old["spec"])]


def _problems_of_schemas(versions: list[Json], before: Json) -> Iterator[Problem]:
    """A schema that all versions share is checked once, at the path `spec.validation`."""
    former = {version.get("name"): _schema(version) for version in before.get("versions") or ()}
    alike = all(_schema(version) == _schema(versions[0]) for version in versions)
    for at, version in enumerate(versions[:1] if alike else versions):
        if schema := _schema(version):
            where = "spec.validation" if alike else f"spec.versions[{at}].schema"
            unchanged = former.get(version.get("name")) == schema
            yield from ready(schema, f"{where}.openAPIV3Schema", unchanged=unchanged)[1]


def _schema(version: Json) -> Json | None:
    found: Json | None = (version.get("schema") or {}).get("openAPIV3Schema")
    return found


class Definitions:
    """Updates the served kinds whenever a stored definition changes."""

    def __init__(self, store: Store, served: Served, end_watches: Callable[[str, str], None]) -> None:
        self._store, self._served, self._end_watches = store, served, end_watches
        store.subscribe(self._tell)

    def _tell(self, change: Change) -> None:
        if change.kind is not CUSTOM_RESOURCE_DEFINITION:
            return
        if change.before is not None and change.type != DELETED and change.before["spec"] == change.object["spec"]:
            return
        spec = change.object["spec"]
        group, plural = spec["group"], spec["names"]["plural"]
        before = [kind for kind in self._served.all() if (kind.group, kind.plural) == (group, plural)]
        self._served.remove(group, plural)
        if change.type == DELETED:
            for kind in before[:1]:
                for obj in self._store.list(kind):
                    self._store.remove(kind, obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
                self._store.drop(kind)
            self._end_watches(group, plural)
        else:
            made = kinds.custom(change.object)
            self._served.add(made)
            for kind in made if change.before is None else ():
                self._store.begin(kind)
