"""Store: reads and writes the objects of one of Escher's kinds (`objects.kind.ObjectStore`).

The API server refuses a write whose version or UID no longer holds (Occupied, Gone). There are no retries here. The
`Schema` defines an object's content.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Generic

import msgspec

from extender.adapters.kubernetes.codecs.intents import LARGEST_INTENT, TransactionIntents, size_of
from extender.adapters.kubernetes.codecs.resources import EphemeralResources
from extender.adapters.kubernetes.codecs.schema import MARK, READY, ObjectJson, Schema, path_of, ready_since, timestamp
from extender.app.contracts.kind import C, Declared, Named, O, Replacement, S, Standing, identity
from extender.app.contracts.ports import EphemeralResource, Intent, ResourceChange, ResourceStatus
from extender.kube.client.requests import JSON, JSON_PATCH, MERGE_PATCH, Requests, address
from extender.kube.errors import Gone, Refused, Unavailable, asking_for_no_version
from extender.kube.nesting import Decoder

_REMEMBERED = 16384

_encode = msgspec.json.Encoder().encode
_objects = Decoder(ObjectJson)


class ApiObjectStore(Generic[O, C, S]):
    """`objects.kind.ObjectStore`. `now`: the time of day, in seconds."""

    def __init__(self, requests: Requests, schema: Schema[O, C, S], now: Callable[[], float] = time.time) -> None:
        self._requests = requests
        self._schema = schema
        self._now = now
        # By UID: (status, since) of the Ready condition, None if there is none. It saves a read before each set_status.
        self._ready: dict[str, tuple[str, str] | None] = {}

    async def get(self, name: Named) -> O:
        return await self._ask("GET", self._path(name))

    async def create(self, item: O, *, dry_run: bool = False) -> O:
        path = path_of(self._schema.plural, item.name.namespace) + _query(dry_run)
        return await self._ask("POST", path, self._schema.manifest(item), JSON)

    async def merge(
        self, name: Named, change: C, *, mark: str = "", if_version: str | None = None, dry_run: bool = False
    ) -> O:
        return await self._patch(name, self._schema.patch(change), {MARK: mark}, if_version, dry_run)

    async def annotate(self, name: Named, *, mark: str = "", if_version: str | None = None) -> O:
        return await self._patch(name, {}, {MARK: mark}, if_version)

    async def _patch(
        self, name: Named, patch: dict[str, Any], said: dict[str, str], if_version: str | None, dry_run: bool = False
    ) -> O:
        """Sends one merge patch; it writes the annotations that have a text."""
        metadata = dict(patch.get("metadata", {}))
        if annotations := {key: text for key, text in said.items() if text} | metadata.get("annotations", {}):
            metadata["annotations"] = annotations
        if if_version is not None:
            metadata["resourceVersion"] = if_version
        content = {**patch, "metadata": metadata} if metadata else patch
        return await self._ask("PATCH", self._path(name) + _query(dry_run), content, MERGE_PATCH)

    async def delete(
        self, name: Named, *, if_version: str | None = None, dry_run: bool = False, there: bool = False
    ) -> O | None:
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if dry_run:
            # The API server ignores the query if there is a body.
            options["dryRun"] = ["All"]
        if if_version is not None:
            options["preconditions"] = {"resourceVersion": if_version}
        try:
            answer = await self._requests.request("DELETE", self._path(name), _encode(options))
        except Gone:
            if there:
                raise
            return None
        return self._left(answer)

    async def set_status(self, item: O, status: S) -> O:
        if item.uid not in self._ready:
            await self.get(item.name)
        now = timestamp(float(int(self._now())))
        was, since = self._ready.get(item.uid) or ("", now)
        wanted = "True" if status.ready else "False"
        content, more = self._schema.status(item, status)

        def condition(name: str, holds: str, reason: str, message: str, since: str) -> dict[str, Any]:
            said = {"type": name, "status": holds, "reason": reason, "message": message}
            return {**said, "observedGeneration": item.generation, "lastTransitionTime": since}

        conditions = [condition(READY, wanted, status.reason, status.message, since if was == wanted else now)]
        conditions += [condition(name, "True", reason, text, now) for name, (reason, text) in more.items()]
        whole = {"observedGeneration": item.generation, "conditions": conditions, **content}
        # A JSON patch: a merge patch would keep former nodes. The UID test excludes another object of this name.
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": item.uid},
            {"op": "add", "path": "/status", "value": whole},
        ]
        try:
            with asking_for_no_version():
                return await self._ask("PATCH", self._path(item.name, "status"), patch, JSON_PATCH)
        except Refused as error:
            # A failed test is a 422 with a general text, which may have another cause.
            if error.status != 422 or (await self.get(item.name)).uid == item.uid:
                raise
            raise Gone(409, f"{item.name} no longer has the UID {item.uid}") from error

    async def _ask(self, method: str, path: str, body: object | None = None, content_type: str = JSON) -> O:
        answer = await self._requests.request(
            method, path, None if body is None else _encode(body), content_type=content_type
        )
        try:
            stored = _objects.decode(answer)
        except msgspec.DecodeError as error:
            raise Unavailable(f"{method} {path}: the answer is not of kind {self._schema.kind}: {error}") from error
        if "dryRun" not in path:
            self._remember(stored)
        return self._schema.read(stored)

    def _remember(self, stored: ObjectJson) -> None:
        if len(self._ready) >= _REMEMBERED:
            self._ready.clear()
        self._ready[stored.metadata.uid] = ready_since(stored)

    def _left(self, answer: bytes) -> O | None:
        """The object that finalizers still hold; None if the answer to the deletion is a Status."""
        try:
            said = self._schema.read(_objects.decode(answer))
        except msgspec.DecodeError:
            return None
        return said if said.deleting and said.finalizers else None

    def _path(self, name: Named, *more: str) -> str:
        return path_of(self._schema.plural, name.namespace) + address(name.name, *more)


class ApiResourceStore(ApiObjectStore[EphemeralResource, ResourceChange, ResourceStatus]):
    """`ports.ResourceStore`, by the API server."""

    def __init__(self, requests: Requests, now: Callable[[], float] = time.time) -> None:
        super().__init__(requests, EphemeralResources(), now)


class ApiIntentStore(ApiObjectStore[Declared[Intent], Replacement[Intent], Standing[Intent]]):
    """`ports.IntentStore`, by the API server."""

    def __init__(self, requests: Requests, now: Callable[[], float] = time.time) -> None:
        super().__init__(requests, TransactionIntents(), now)

    async def merge(
        self,
        name: Named,
        change: Replacement[Intent],
        *,
        mark: str = "",
        if_version: str | None = None,
        dry_run: bool = False,
    ) -> Declared[Intent]:
        """As of any store. Raises Refused if the object would be larger than `LARGEST_INTENT`."""
        if (size := size_of(Declared(identity(name), change.after))) > LARGEST_INTENT:
            raise Refused(413, f"it would have {size:,} bytes; the limit is {LARGEST_INTENT:,}")
        return await super().merge(name, change, mark=mark, if_version=if_version, dry_run=dry_run)


def _query(dry_run: bool) -> str:
    return "?dryRun=All" if dry_run else ""
