"""Schemas: how Escher reads and writes the JSON of its own kinds.

This module has the common part, and one schema for kinds whose whole meaning is their spec. People write these objects
with kubectl, and a cluster may have an older definition. So whatever is wrong becomes the object's `problem`, worded
for its author, and never an exception.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Raw, Struct, field

from extender.app.contracts.kind import C_contra, Declared, Identity, O, Replacement, S_contra, Spec, Standing
from extender.core.names import DOMAIN
from extender.kube.nesting import Decoder

GROUP = DOMAIN
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
READY = "Ready"
MARK = f"{DOMAIN}/mark"
"""Annotation: the mark of Escher's last write."""

_LONGEST_MARK = 128
"""Characters. Escher's marks have 46."""
_MOST_FINALIZERS = 16
"""Finalizers per object that are kept. Code needs only one; the others are for people."""

_LONGEST_SPEC = 2**18
"""Bytes of a spec that are decoded, by default; the longest policy has about 140,000."""

StatusShape = TypeVar("StatusShape", bound="StatusJson")


class Shape(Struct, rename="camel"):
    """JSON as Kubernetes spells it; unknown fields are skipped."""


class ObjectMetadata(Shape):
    name: str
    namespace: str
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    creation_timestamp: datetime | None = None
    deletion_timestamp: str | None = None
    finalizers: list[str] | None = None
    annotations: dict[str, str] | None = None


class ObjectJson(Shape):
    """An object. `spec` and `status` are decoded later: with bad ones it still has a name."""

    metadata: ObjectMetadata
    spec: Raw = field(default_factory=lambda: Raw(b"{}"))
    status: Raw = field(default_factory=lambda: Raw(b"{}"))


class Condition(Shape):
    type: str
    status: str = ""
    message: str = ""
    last_transition_time: str = ""


class StatusJson(Shape):
    observed_generation: int = 0
    conditions: list[Condition] | None = None


class _DeclaredStatus(StatusJson):
    in_force: Raw = field(default_factory=lambda: Raw(b"null"))


_statuses: Decoder[StatusJson | None] = Decoder(StatusJson | None)
_declared_statuses: Decoder[_DeclaredStatus | None] = Decoder(_DeclaredStatus | None)


class Schema(Protocol[O, C_contra, S_contra]):
    """One of Escher's own kinds."""

    @property
    def kind(self) -> str: ...
    @property
    def plural(self) -> str: ...

    def read(self, said: ObjectJson) -> O:
        """Converts the object. Does not raise for what its author wrote."""
        ...

    def manifest(self, item: O) -> dict[str, Any]:
        """The object as the POST contains it, with its mark."""
        ...

    def patch(self, change: C_contra) -> dict[str, Any]:
        """A merge patch of spec, and of metadata.annotations if needed."""
        ...

    def status(self, item: O, status: S_contra) -> tuple[dict[str, Any], Mapping[str, tuple[str, str]]]:
        """Status fields, and (reason, message) of true conditions, without the Ready condition."""
        ...


def path_of(plural: str, namespace: str | None = None) -> str:
    """The collection of a namespace, or of all."""
    root = f"/apis/{GROUP}/{VERSION}"
    return f"{root}/{plural}" if namespace is None else f"{root}/namespaces/{quote(namespace, safe='')}/{plural}"


def ready_since(said: ObjectJson) -> tuple[str, str] | None:
    """(status, lastTransitionTime) of the Ready condition; None if there is none yet."""
    for condition in read_status(_statuses, said.status, StatusJson()).conditions or ():
        if condition.type == READY:
            return condition.status, condition.last_transition_time
    return None


def read_status(statuses: Decoder[StatusShape | None], raw: Raw, empty: StatusShape) -> StatusShape:
    """The status, or `empty` for one that cannot be decoded; Escher then writes it again."""
    try:
        return statuses.decode(raw) or empty
    except msgspec.DecodeError:
        return empty


def facts(metadata: ObjectMetadata, status: StatusJson) -> dict[str, Any]:
    """The fields that every one of Escher's objects has."""
    return {
        "uid": metadata.uid,
        "resource_version": metadata.resource_version,
        "generation": metadata.generation,
        "observed_generation": status.observed_generation,
        "said_unready": any(each.type == READY and each.status == "False" for each in status.conditions or ()),
        "deleting": metadata.deletion_timestamp is not None,
        "finalizers": tuple((metadata.finalizers or ())[:_MOST_FINALIZERS]),
        "mark": annotated(metadata, MARK, _LONGEST_MARK),
    }


def annotated(metadata: ObjectMetadata, annotation: str, most: int) -> str:
    """The annotation's text; empty if longer than `most` characters, and so not Escher's."""
    text = (metadata.annotations or {}).get(annotation, "")
    return text if len(text) <= most else ""


def manifest(
    kind: str, namespace: str, name: str, spec: Mapping[str, Any], annotations: Mapping[str, str | None]
) -> dict[str, Any]:
    """The object as the POST contains it. Annotations without text are left out."""
    metadata: dict[str, Any] = {"name": name, "namespace": namespace}
    if said := {key: text for key, text in annotations.items() if text}:
        metadata["annotations"] = said
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def timestamp(seconds: float) -> str:
    """RFC 3339, to the microsecond if there is a fraction, so that an expiry is never shortened."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def worded(error: msgspec.DecodeError) -> str:
    """msgspec's error with its place `$.nodes[...]` as users know it: spec.nodes."""
    what, _, where = str(error).partition(" - at `$")
    return f"spec{where.rstrip('`')}: {what[:1].lower()}{what[1:]}"


class Declaration(Generic[Spec]):
    """The schema of a kind whose objects are `Declared`: name, and msgspec type of the spec.

    `expires_at`: when an object with such a spec expires, in seconds since the epoch; None: never. status.inForce has
    the spec in force, which the definition must allow unchanged.
    """

    longest = _LONGEST_SPEC
    """Bytes of a spec that are decoded."""

    def __init__(
        self, kind: str, plural: str, spec: type[Spec], expires_at: Callable[[Spec], float | None] = lambda spec: None
    ) -> None:
        self.kind = kind
        self.plural = plural
        self._expires_at = expires_at
        self._specs: Decoder[Spec] = Decoder(spec)

    def decode(self, said: Raw) -> Spec:
        """The spec. Raises msgspec.DecodeError."""
        return self._specs.decode(said)

    def encode(self, spec: Spec | None) -> Any:
        """The spec as JSON, without null fields."""
        return _json(spec)

    def read(self, said: ObjectJson) -> Declared[Spec]:
        status = read_status(_declared_statuses, said.status, _DeclaredStatus())
        told = next((each.message for each in status.conditions or () if each.type == READY), "")
        common: dict[str, Any] = {**facts(said.metadata, status), "in_force": self._in_force(status), "said": told}
        name = Identity(said.metadata.namespace, said.metadata.name)
        if (size := len(memoryview(said.spec))) > self.longest:
            return Declared(name, None, f"spec has {size} bytes; at most {self.longest} are read", **common)
        try:
            spec = self.decode(said.spec)
        except msgspec.DecodeError as error:
            return Declared(name, None, worded(error), **common)
        return Declared(name, spec, **common, expires_at=self._expires_at(spec))

    def _in_force(self, status: _DeclaredStatus) -> Spec | None:
        if len(memoryview(status.in_force)) > self.longest:
            return None
        try:
            return self.decode(status.in_force)
        except msgspec.DecodeError:
            return None

    def manifest(self, item: Declared[Spec]) -> dict[str, Any]:
        return manifest(self.kind, item.name.namespace, item.name.name, self.encode(item.spec), {MARK: item.mark})

    def patch(self, change: Replacement[Spec]) -> dict[str, Any]:
        return {"spec": _merge_patch(self.encode(change.before), self.encode(change.after))}

    def status(
        self, item: Declared[Spec], status: Standing[Spec]
    ) -> tuple[dict[str, Any], Mapping[str, tuple[str, str]]]:
        in_force = {} if status.in_force is None else {"inForce": self.encode(status.in_force)}
        return {**status.counts, **in_force}, {}


def _json(value: object) -> Any:
    """As JSON, without null fields: the API server refuses null for a string."""
    return _without_null({} if value is None else msgspec.to_builtins(value))


def _without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_null(each) for key, each in value.items() if each is not None}
    return [_without_null(each) for each in value] if isinstance(value, list) else value


def _merge_patch(before: Any, after: Any) -> Any:
    """The patch that changes `before` to `after` (RFC 7396)."""
    if not isinstance(before, dict) or not isinstance(after, dict):
        return after
    changed = {key: _merge_patch(before.get(key), each) for key, each in after.items() if each != before.get(key)}
    return {**dict.fromkeys(before.keys() - after.keys()), **changed}
