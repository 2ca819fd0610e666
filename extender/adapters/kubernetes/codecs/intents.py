"""Intents: reads and writes the JSON of the custom resource TransactionIntent (deploy/crds).

An intent holds an object's former state as its spec and its annotations, from which Escher reads it again.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Raw

from extender.adapters.kubernetes.codecs.resources import to_json, to_resource
from extender.adapters.kubernetes.codecs.schema import Declaration, ObjectJson, ObjectMetadata, Shape
from extender.app.contracts.kind import Declared, Identity
from extender.app.contracts.ports import EphemeralResource, Former, Intent
from extender.kube.nesting import Decoder

KIND, PLURAL = "TransactionIntent", "transactionintents"
LARGEST_INTENT = 1_000_000
"""Bytes of an intent. The limit of etcd is 1.5 MiB per object."""
_MOST = 1000
"""Most objects of a transaction, which is also its limit of operations."""
_MOST_PARTS = 16 * _MOST
"""Most braces in a spec: each object has at most eleven, with its former state and annotations."""


class _Was(Shape):
    spec: Raw
    annotations: dict[str, str] | None = None


class _Former(Shape):
    namespace: str
    name: str
    deletes: bool = False
    was: _Was | None = None


class _Spec(Shape):
    objects: Annotated[list[_Former], msgspec.Meta(max_length=_MOST)]
    given_up: bool = False


_specs = Decoder(_Spec)


class TransactionIntents(Declaration[Intent]):
    """`schema.Schema` of TransactionIntent."""

    longest = 2 * LARGEST_INTENT

    def __init__(self) -> None:
        super().__init__(KIND, PLURAL, Intent)

    def decode(self, said: Raw) -> Intent:
        if bytes(said).count(b"{") > _MOST_PARTS:
            raise msgspec.ValidationError(f"Has more than {_MOST} objects")
        spec = _specs.decode(said)
        return Intent(tuple(map(_to_former, spec.objects)), spec.given_up)

    def encode(self, spec: Intent | None) -> Any:
        return {} if spec is None else {"objects": [_former_json(each) for each in spec.formers], **_end(spec)}


def size_of(item: Declared[Intent]) -> int:
    """Bytes of the object as the POST would contain it."""
    return len(msgspec.json.encode(TransactionIntents().manifest(item)))


def _end(spec: Intent) -> dict[str, bool]:
    return {"givenUp": True} if spec.given_up else {}


def _former_json(former: Former) -> dict[str, Any]:
    said: dict[str, Any] = {"namespace": former.name.namespace, "name": former.name.name}
    if former.deletes:
        said["deletes"] = True
    if former.resource is not None:
        whole = to_json(former.resource)
        said["was"] = {"spec": whole["spec"]}
        if annotations := whole["metadata"].get("annotations"):
            said["was"]["annotations"] = annotations
    return said


def _to_former(said: _Former) -> Former:
    name = Identity(said.namespace, said.name)
    return Former(name, None if said.was is None else _to_resource(name, said.was), said.deletes)


def _to_resource(name: Identity, was: _Was) -> EphemeralResource:
    metadata = ObjectMetadata(name=name.name, namespace=name.namespace, annotations=was.annotations)
    return to_resource(ObjectJson(metadata, was.spec))
