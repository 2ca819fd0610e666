"""Writes: creates, replaces, patches and deletes objects, with optimistic concurrency.

It makes its checks in kube-apiserver's order. `admission` has the rules of each kind, `deletion` those of deletions.
"""

from __future__ import annotations

from typing import Any

from kubesim import kinds
from kubesim.apiserver.machinery import metadata, patches, views
from kubesim.apiserver.machinery.failures import (
    Problem,
    bad_request,
    conflict,
    exists,
    invalid,
    missing,
    not_found,
    other_uid,
    unsupported_media,
    wrong,
)
from kubesim.apiserver.machinery.served import Target
from kubesim.apiserver.machinery.store import Store, key_of
from kubesim.apiserver.machinery.strategic import strategic_merge
from kubesim.apiserver.representation import shapes
from kubesim.apiserver.storage import bodies, deletion
from kubesim.apiserver.validation.admission import Admission
from kubesim.kinds import Json, Kind

_ALWAYS_VERSIONED = (
    kinds.LEASE,
    kinds.DISRUPTION_BUDGET,
    kinds.CUSTOM_RESOURCE_DEFINITION,
    kinds.MUTATING_POLICY,
    kinds.MUTATING_POLICY_BINDING,
)
"""Built-in kinds that need a resourceVersion in updates, as all custom resources do."""
_CREATED_BY_PUT = (kinds.EVENT, kinds.EVENTS, kinds.LEASE)


class Writes:
    def __init__(self, store: Store, admission: Admission) -> None:
        self._store = store
        self._admission = admission

    def create(self, target: Target, obj: Json, *, dry_run: bool = False) -> Json:
        """Creates the object; returns it as stored. Raises Failure."""
        kind = target.kind
        named = bool((obj.get("metadata") or {}).get("name"))
        body = self._admission.of_new(kind, obj, target.where)
        body = views.inward(kind, body)
        if kind in (kinds.EVENT, kinds.EVENTS):
            problems = views.event_problems(kind, body)
            if problems:
                raise invalid(kinds.EVENT, body["metadata"]["name"], problems)
        name, namespace = body["metadata"]["name"], body["metadata"].get("namespace", "")
        there = self._store.get(kind, namespace, name)
        if there is not None:
            leaving = bool(there["metadata"].get("deletionTimestamp"))
            raise exists(kind, name, generated=not named, leaving=leaving)
        return body if dry_run else self._store.create(kind, body)

    def replace(self, target: Target, obj: Json, *, dry_run: bool = False) -> tuple[Json, bool]:
        """The object as it is stored, and whether it was created. Raises Failure."""
        kind, old = target.kind, self._old(target)
        meta = self._named(target, obj)
        if old is None:
            if kind in _CREATED_BY_PUT and not target.subresource:
                created = {key: value for key, value in meta.items() if key != "resourceVersion"}
                return self.create(target, {**obj, "metadata": created}, dry_run=dry_run), True
            raise not_found(kind, target.name)
        asked = meta.get("uid")
        if asked and asked != old["metadata"]["uid"]:
            raise other_uid(kind, key_of(old), target.name, asked, old["metadata"]["uid"])
        if not meta.get("resourceVersion") and (kind.is_custom or kind in _ALWAYS_VERSIONED):
            problem = Problem("FieldValueInvalid", "metadata.resourceVersion",
                              "Invalid value: 0: must be specified for an update")  # fmt: skip
            raise invalid(kind, target.name, [problem], called=kind.plural)
        return self._put(target, {**obj, "metadata": meta}, old, dry_run), False

    def patch(
        self, target: Target, media: str, patch: Any, *, dry_run: bool = False, manager: str = "", strict: bool = False
    ) -> tuple[Json, bool]:
        """The object as it is stored, and whether it was created. Raises Failure."""
        kind, old = target.kind, self._old(target)
        if media == patches.APPLY_PATCH:
            if not manager:
                problem = missing("fieldManager", "is required for apply patch")
                raise invalid(_PATCH_OPTIONS, "", [problem])
            if old is None and not target.subresource:
                patch = shapes.known(kind, patch, [])
                self._named(target, patch)
                return self.create(target, patch, dry_run=dry_run), True
        if old is None:
            raise not_found(kind, target.name)
        current = views.outward(kind, old)
        new = self._patched(kind, media, current, patch)
        if not isinstance(new, dict) or not isinstance(new.get("metadata", {}), dict):
            raise bad_request("the patched object is no object")
        if new.get("kind", kind.name) != kind.name or new.get("apiVersion", kind.api_version) != kind.api_version:
            if kind.is_custom:
                raise bodies.other_custom_kind(kind, new)
            raise bad_request("the API version in the data does not match the expected API version")
        if strict:
            shown = metadata.go_text(patch) if media == patches.STRATEGIC_MERGE_PATCH else ""
            failure = bodies.strict_problems(kind, new, shown)
            if failure is not None:
                raise failure
        new = shapes.known(kind, new, [], current)
        meta = self._named(target, new)
        return self._put(target, {**new, "metadata": meta}, old, dry_run), False

    def delete(self, target: Target, wanted: deletion.Options) -> tuple[Json, bool]:
        """The object, and whether it is removed or only marked. Raises Failure."""
        kind, old = target.kind, self._old(target)
        if old is None:
            raise not_found(kind, target.name)
        deletion.check(kind, old, wanted)
        kept, stays = deletion.marked(kind, old, wanted, self._admission.clock)
        if wanted.dry_run:
            return kept, not stays
        # A pod that is removed at once is still marked before, and watches see that change.
        kept = self._store.replace(kind, kept)
        if stays:
            return kept, False
        self._store.remove(kind, target.where, target.name)
        return kept, True

    def _old(self, target: Target) -> Json | None:
        return self._store.get(target.kind, target.where, target.name)

    def _named(self, target: Target, obj: Json) -> Json:
        """The metadata of the sent object, which must fit the path. Raises Failure (400)."""
        meta = metadata.shaped(target.kind, obj)
        name = meta.setdefault("name", target.name)
        if name != target.name:
            raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({target.name})")
        metadata.place(target.kind, meta, target.where)
        return meta

    def _patched(self, kind: Kind, media: str, current: Json, patch: Any) -> Any:
        if media == patches.JSON_PATCH:
            return patches.json_patch(current, patch)
        if not isinstance(patch, dict):
            given = metadata.go_kind(patch)
            raise bad_request(
                f"error decoding patch: json: cannot unmarshal {given} into Go value of type map[string]interface {{}}"
            )
        if media == patches.MERGE_PATCH or (media == patches.APPLY_PATCH and kind.is_custom):
            return patches.merge(current, patch)
        if media in (patches.STRATEGIC_MERGE_PATCH, patches.APPLY_PATCH) and not kind.is_custom:
            return strategic_merge(kind.name, current, patch)
        accepted = (patches.JSON_PATCH, patches.MERGE_PATCH, patches.APPLY_PATCH)
        raise unsupported_media(accepted if kind.is_custom else ())

    def _put(self, target: Target, new: Json, old: Json, dry_run: bool) -> Json:
        kind = target.kind
        asked = new["metadata"].get("resourceVersion")
        if asked in (None, "0"):
            new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        elif not asked.isdigit():
            raise invalid(kind, target.name, [wrong("metadata.resourceVersion", asked, "must be an integer")])
        elif asked != old["metadata"]["resourceVersion"]:
            raise conflict(kind, target.name)
        body = self._admission.of_changed(kind, new, views.outward(kind, old), target.subresource)
        body = views.inward(kind, body)
        if dry_run:
            return body
        if deletion.let_go(kind, body, old):
            meta = old["metadata"]
            self._store.remove(kind, meta.get("namespace", ""), meta["name"])
            return body
        return self._store.replace(kind, body)


_PATCH_OPTIONS = Kind("meta.k8s.io", "v1", "PatchOptions", "patchoptions")
