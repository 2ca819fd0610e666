"""Emptying: deletes everything created in a cluster since a backup, while the cluster runs.

Objects of users, controllers and tests are deleted by ordinary requests, and their finalizers are removed. So watches,
the scheduler and kubelets see the deletions, and resource versions only increase.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec

from extender.kube.client.requests import MERGE_PATCH
from extender.kube.errors import Refused
from kubesim.apiserver.machinery.store import Backup, key_of
from kubesim.apiserver.serving.api import ApiServer
from kubesim.apiserver.serving.in_process import InProcess
from kubesim.kinds import CUSTOM_RESOURCE_DEFINITION, JOB, NAMESPACE, POD, Json, Kind

_AT_ONCE = msgspec.json.encode({"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
_NO_FINALIZERS = msgspec.json.encode({"metadata": {"finalizers": None}})
# Kinds that create other objects come first. Namespaces come last, because they wait for their contents.
_FIRST, _LAST = (CUSTOM_RESOURCE_DEFINITION, JOB, POD), (NAMESPACE,)


class NotEmpty(Exception):
    """Objects are created again and again. `str()` names them."""


async def empty(api: ApiServer, first: Backup, *, within: float = 10.0) -> None:
    """Restores the objects of `first`, as they were. Raises NotEmpty after `within` seconds."""
    requests, loop = InProcess(api, user="kubesim"), asyncio.get_running_loop()
    deadline = loop.time() + within
    while made := list(_made_since(api, first)):
        if loop.time() > deadline:
            raise NotEmpty(f"still there after {within:g} s: " + ", ".join(_worded(*each) for each in made[:5]))
        for kind, found in made:
            await _delete(requests, kind, found)
        await asyncio.sleep(0.002)
    for kind, then in first.objects.items():
        for key, was in then.items():
            namespace, _, name = key.partition("/")
            if (now := api.store.get(kind, namespace, name)) is None:
                api.store.create(kind, was)
            elif now is not was:
                api.store.replace(kind, was)


def _made_since(api: ApiServer, first: Backup) -> Iterator[tuple[Kind, Json]]:
    kinds = [kind for kind in api.served.all() if kind not in (*_FIRST, *_LAST)]
    for kind in (*_FIRST, *kinds, *_LAST):
        then = first.objects.get(kind, {})
        for found in api.store.list(kind):
            if key_of(found) not in then:
                yield kind, found


async def _delete(requests: InProcess, kind: Kind, found: Json) -> None:
    path = kind.path(found["metadata"].get("namespace", ""), found["metadata"]["name"])
    try:
        if found["metadata"].get("finalizers"):
            await requests.request("PATCH", path, _NO_FINALIZERS, content_type=MERGE_PATCH)
        if not found["metadata"].get("deletionTimestamp") or kind is POD:
            await requests.request("DELETE", path, _AT_ONCE)
    except Refused:
        # The object is gone, has changed, or goes with its definition; the next pass of `empty` sees which.
        return


def _worded(kind: Kind, found: Json) -> str:
    return f"{kind!r} {key_of(found).lstrip('/')}"
