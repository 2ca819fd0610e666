"""Extenders: kube-scheduler's requests to one, as JSON with Go's field names, and their answers.

Source: k8s.io/kube-scheduler/extender/v1/types.go and pkg/scheduler/extender.go. Answers are read as Go reads them:
keys in any case, the first JSON value only, null as empty. Every failure is an ExtenderFailed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from kubesim.scheduler.config import ExtenderConfig
from kubesim.scheduler.extender_client import ExtenderClient, ExtenderFailed
from kubesim.scheduler.state.cache import NodeInfo
from kubesim.scheduler.state.seen import SeenPod

_HIGHEST = 10
"""The factor of an extender's scores: its 10 is worth a plugin's 100."""

_encode = msgspec.json.Encoder().encode
_read = json.JSONDecoder().raw_decode
_quoted = json.dumps


class Victims(NamedTuple):
    """The victims on a node, the most important first."""

    pods: Sequence[SeenPod]
    violations: int


class Filtered(NamedTuple):
    passed: list[NodeInfo]
    failed: Mapping[str, str]
    unresolvable: Mapping[str, str]


class Extender:
    """One extender of the configuration, with its client."""

    def __init__(self, config: ExtenderConfig, client: ExtenderClient) -> None:
        self.config = config
        self._client = client

    def is_interested(self, pod: SeenPod) -> bool:
        """Whether it manages a resource that the pod names; without a list it manages all pods."""
        managed = self.config.managed_resources
        if not managed:
            return True
        spec = pod.raw["spec"]
        for container in (*spec["containers"], *(spec.get("initContainers") or ())):
            resources = container.get("resources") or {}
            if not managed.isdisjoint(resources.get("requests") or ()):
                return True
            if not managed.isdisjoint(resources.get("limits") or ()):
                return True
        return False

    async def filter(self, pod: SeenPod, nodes: list[NodeInfo]) -> Filtered:
        if not self.config.filter_verb:
            return Filtered(nodes, {}, {})
        answer = _object(await self._post(self.config.filter_verb, self._arguments(pod, nodes)))
        if error := _text(answer.get("error")):
            raise ExtenderFailed(error)
        sent = {info.name: info for info in nodes}
        passed: list[NodeInfo] = []
        names, full = answer.get("nodenames"), _object(answer.get("nodes"))
        if not (self.config.node_cache_capable and names is not None):
            names = [_object(_object(item).get("metadata")).get("name") for item in full.get("items") or ()]
        for name in names:
            if name not in sent:
                raise ExtenderFailed(
                    f"extender {_quoted(self.config.url_prefix)} claims a filtered node {_quoted(name)} "
                    "which is not found in the input node list"
                )
            passed.append(sent[name])
        return Filtered(passed, _reasons(answer, "failednodes"), _reasons(answer, "failedandunresolvablenodes"))

    async def prioritize(self, pod: SeenPod, nodes: list[NodeInfo]) -> Mapping[str, int]:
        """The amount to add to each node's score."""
        if not self.config.prioritize_verb:
            return {}
        answer = await self._post(self.config.prioritize_verb, self._arguments(pod, nodes))
        scores: dict[str, int] = {}
        for each in _list(answer):
            host, score = _text(_object(each).get("host")), _object(each).get("score") or 0
            if not isinstance(score, int):
                raise ExtenderFailed(
                    "json: cannot unmarshal number into Go struct field HostPriority.Score of type int64"
                )
            scores[host] = scores.get(host, 0) + score * self.config.weight * _HIGHEST
        return scores

    async def bind(self, pod: SeenPod, node: str) -> None:
        arguments = {"PodName": pod.name, "PodNamespace": pod.namespace, "PodUID": pod.uid, "Node": node}
        answer = _object(await self._post(self.config.bind_verb, arguments))
        if error := _text(answer.get("error")):
            raise ExtenderFailed(error)

    async def preempt(
        self, pod: SeenPod, candidates: Mapping[str, Victims], known: Callable[[str], NodeInfo | None]
    ) -> dict[str, Victims]:
        """The nodes on which the extender would preempt, and the victims there."""
        meta = full = None
        if self.config.node_cache_capable:
            meta = {
                node: {"Pods": [{"UID": each.uid} for each in who.pods], "NumPDBViolations": who.violations}
                for node, who in candidates.items()
            }
        else:
            full = {
                node: {"Pods": [each.encoded() for each in who.pods], "NumPDBViolations": who.violations}
                for node, who in candidates.items()
            }
        arguments = {"Pod": pod.encoded(), "NodeNameToVictims": full, "NodeNameToMetaVictims": meta}
        answer = _object(await self._post(self.config.preempt_verb, arguments))
        chosen: dict[str, Victims] = {}
        for node, who in (answer.get("nodenametometavictims") or {}).items():
            info = known(node)
            if info is None:
                raise ExtenderFailed(f"nodeinfo not found for node name {_quoted(node)}")
            fields = _object(who)
            pods = [self._victim(_text(_object(each).get("uid")), info) for each in fields.get("pods") or ()]
            chosen[node] = Victims(pods, fields.get("numpdbviolations") or 0)
        return chosen

    def _victim(self, uid: str, info: NodeInfo) -> SeenPod:
        for known, pod in info.pods.items():
            if known == uid:
                return pod
        raise ExtenderFailed(
            f"extender: {self.config.url_prefix} claims to preempt pod (UID: &{{{uid}}}) on node: {info.name}, "
            "but the pod is not found on that node"
        )

    def _arguments(self, pod: SeenPod, nodes: Sequence[NodeInfo]) -> dict[str, Any]:
        if self.config.node_cache_capable:
            return {"Pod": pod.encoded(), "Nodes": None, "NodeNames": [info.name for info in nodes]}
        items = [info.node.encoded() for info in nodes if info.node is not None]
        return {"Pod": pod.encoded(), "Nodes": {"metadata": {}, "items": items}, "NodeNames": None}

    async def _post(self, verb: str, arguments: Mapping[str, Any]) -> Any:
        try:
            async with asyncio.timeout(self.config.http_timeout):
                body = await self._client.call(verb, _encode(arguments))
        except TimeoutError:
            url = f"{self.config.url_prefix.rstrip('/')}/{verb}"
            raise ExtenderFailed(
                f'Post "{url}": context deadline exceeded (Client.Timeout exceeded while awaiting headers)'
            ) from None
        text = body.decode(errors="replace").lstrip()
        if not text:
            raise ExtenderFailed("EOF")
        try:
            return _read(text)[0]
        except ValueError as error:
            raise ExtenderFailed(f"invalid character in the answer: {error}") from None


def _object(value: Any) -> dict[str, Any]:
    """An object with lower-case keys, since Go ignores their case; empty for null."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ExtenderFailed(f"json: cannot unmarshal {_kind(value)} into Go value of an object's type")
    return {key.lower(): each for key, each in value.items()}


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise ExtenderFailed(f"json: cannot unmarshal {_kind(value)} into Go value of type v1.HostPriorityList")
    return value


def _text(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ExtenderFailed(f"json: cannot unmarshal {_kind(value)} into Go value of type string")
    return value


def _reasons(answer: Mapping[str, Any], key: str) -> Mapping[str, str]:
    value = answer.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ExtenderFailed(f"json: cannot unmarshal {_kind(value)} into Go value of type v1.FailedNodesMap")
    return {node: _text(why) for node, why in value.items()}


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, dict):
        return "object"
    if isinstance(value, list):
        return "array"
    return "string" if isinstance(value, str) else "number"
