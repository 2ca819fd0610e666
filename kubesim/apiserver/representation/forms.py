"""Forms: encodes objects, lists and watch events whole, as metadata only, or as a table.

The `Accept` header of the request selects the form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from kubesim.apiserver.machinery import views
from kubesim.apiserver.machinery.failures import not_acceptable
from kubesim.apiserver.machinery.store import Change, Store
from kubesim.apiserver.machinery.wire import Request
from kubesim.apiserver.representation import tables
from kubesim.kinds import Json, Kind

_encode = msgspec.json.Encoder().encode

WHOLE, METADATA, TABLE = "whole", "metadata", "table"
_AS = {"PartialObjectMetadata": METADATA, "PartialObjectMetadataList": METADATA, "Table": TABLE}
_META = "meta.k8s.io/v1"
_READABLE = ("application/json", "application/*", "*/*", "application/yaml")


class Form:
    """One form of objects of one kind. Forms with the same `name` can share encoded lines."""

    def __init__(self, kind: Kind, request: Request, store: Store, now: Callable[[], float]) -> None:
        self.kind = kind
        self.name = asked_for(request.accept)
        self._include = request.query.get("includeObject") or "Metadata"
        self._store = store
        self._now = now
        self._headers = True

    def one(self, obj: Json) -> bytes:
        obj = views.outward(self.kind, obj)
        if self.name == WHOLE:
            return _encode(obj)
        if self.name == METADATA:
            return _encode(partial(obj))
        meta = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
        shown = tables.table(self.kind, [obj], self._now(), meta, include_object=self._include, headers=self._headers)
        return _encode(shown)

    def many(self, items: Sequence[Json], metadata: Json) -> bytes:
        shown = [views.outward(self.kind, obj) for obj in items]
        if self.name == TABLE:
            return _encode(tables.table(self.kind, shown, self._now(), metadata, include_object=self._include))
        if self.name == METADATA:
            parts = [partial(obj) for obj in shown]
            header = {"kind": "PartialObjectMetadataList", "apiVersion": _META}
            return _encode({**header, "metadata": metadata, "items": parts})
        if not self.kind.is_custom:
            shown = [{key: value for key, value in obj.items() if key not in ("kind", "apiVersion")} for obj in shown]
        else:
            metadata = {"continue": "", **metadata}
        header = {"kind": f"{self.kind.name}List", "apiVersion": self.kind.api_version}
        return _encode({**header, "metadata": metadata, "items": shown})

    def line(self, of_type: str, obj: Json, change: Change | None = None) -> bytes:
        """A watch event. All watches in the same form share the encoded line of one change."""
        if change is None or self.name == TABLE or obj is not change.object:
            return self._line(of_type, obj)
        key = (of_type, self.name, self.kind)
        line = change.lines.get(key)
        if line is None:
            line = change.lines[key] = self._line(of_type, obj)
        return line

    def _line(self, of_type: str, obj: Json) -> bytes:
        if self.name == WHOLE and views.outward(self.kind, obj) is obj:
            body = self._store.encoded(obj)
        else:
            body = self.one(obj)
            # A watch sends the column definitions only once.
            self._headers = False
        return b'{"type":"%b","object":%b}\n' % (of_type.encode(), body)

    def bookmark(self, version: int, *, initial: bool) -> bytes:
        """The BOOKMARK line: the server has sent everything up to this version."""
        metadata: Json = {"resourceVersion": str(version)}
        if initial:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        if self.name == TABLE:
            body = {"kind": "Table", "apiVersion": _META, "metadata": metadata, "columnDefinitions": None, "rows": [
                {"cells": [], "object": {"kind": "PartialObjectMetadata", "apiVersion": _META, "metadata": metadata}}
            ]}  # fmt: skip
        elif self.name == METADATA:
            body = {"kind": "PartialObjectMetadata", "apiVersion": _META, "metadata": metadata}
        else:
            body = {"kind": self.kind.name, "apiVersion": self.kind.api_version, "metadata": metadata}
        return b'{"type":"BOOKMARK","object":%b}\n' % _encode(body)


def partial(obj: Json) -> Json:
    return {"kind": "PartialObjectMetadata", "apiVersion": _META, "metadata": obj["metadata"]}


def asked_for(accept: str) -> str:
    """The first form of an Accept header that is supported. Raises Failure (406) if none is."""
    if not accept:
        return WHOLE
    for clause in accept.split(","):
        media, *parameters = (part.strip() for part in clause.split(";"))
        if media not in _READABLE:
            continue
        wanted = dict(each.partition("=")[::2] for each in parameters)
        if "as" not in wanted:
            return WHOLE
        form = _AS.get(wanted["as"])
        if form is not None and wanted.get("g") == "meta.k8s.io" and wanted.get("v") == "v1":
            return form
    raise not_acceptable(
        "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, "
        "application/vnd.kubernetes.protobuf"
    )
