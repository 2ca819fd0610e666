"""Wire: the bodies that kube-scheduler sends to an extender, and the answers it reads.

Source: k8s.io/kube-scheduler/extender/v1/types.go, which has no JSON tags, so the keys are Go's field names. Required
fields have no defaults: a body in lower case is refused, and never taken for an empty pod. Unknown keys are allowed,
because a later kube-scheduler may send more.

With nodeCacheCapable, nodes are sent as names. Without it they are sent as whole objects, and kube-scheduler goes on
with the returned ones. Therefore the bytes of each node are kept and returned unchanged.

Answers are one JSON value without a trailing newline: Go's decoder takes what follows for a second value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import Raw, Struct, field

from extender.adapters.http.problems import Problem, ProblemKind, dotted
from extender.adapters.http.verbs.lazy_node_names import LazyNodeNames, cut_out, sent_names
from extender.adapters.translation.pod_sizes import outlined
from extender.app.contracts.extender_api import Verdict, Victims
from extender.kube.names import NodeName, PodUid
from extender.kube.objects import Pod

T = TypeVar("T")
_SCHEDULERS = 4
"""Schedulers that may call at once, each about one pod; prioritize reuses the pod of filter."""
_LARGEST_POD = 2 * 2**20
"""Bytes; etcd takes pods of up to 1.5 MiB. No kube-scheduler sends a larger pod: not remembered."""


class _Nodes(Struct):
    items: list[Raw] | None
    """Node objects as they were sent; Go writes an empty list as null."""


class _FilterCall(Struct, rename="pascal"):
    """ExtenderArgs: the body of filter and prioritize. One of `nodes` and `node_names` is null."""

    pod: Raw
    nodes: _Nodes | None
    node_names: Raw


class _NodeMetadata(Struct, gc=False):
    name: NodeName


class _Node(Struct, gc=False):
    """A Node; only its name is read."""

    metadata: _NodeMetadata


class _NodesByName(Struct):
    items: list[_Node] | None


class _PrioritizeCall(Struct, rename="pascal"):
    """ExtenderArgs for prioritize, whose answer returns no nodes."""

    pod: Raw
    nodes: _NodesByName | None
    node_names: Raw


class _NamedCall(Struct, rename="pascal"):
    """ExtenderArgs with node names, which were cut out before."""

    pod: Raw
    nodes: None
    node_names: None


class FilterCall(NamedTuple):
    """A call's pod and nodes."""

    pod: Pod
    """The same object as in an earlier call with the same pod, such as filter before prioritize."""
    nodes: Sequence[NodeName]
    sent: Mapping[NodeName, Raw] | None = None
    """The nodes' own bytes, if they came in full and must be returned."""


class BindCall(Struct, rename="pascal"):
    """ExtenderBindingArgs."""

    pod_name: str
    pod_namespace: str
    pod_uid: PodUid = field(name="PodUID")
    node: NodeName


class Named(Struct):
    uid: PodUid


class VictimPod(Struct):
    """A victim as a whole Pod object; only its UID is read."""

    metadata: Named


class FullVictims(Struct):
    pods: list[VictimPod] | None = field(name="Pods")
    budget_violations: int = field(name="NumPDBViolations")


class MetaPod(Struct):
    uid: PodUid = field(name="UID")


class MetaVictims(Struct):
    pods: list[MetaPod] | None = field(name="Pods")
    budget_violations: int = field(name="NumPDBViolations")


class _PreemptCall(Struct, rename="pascal"):
    """ExtenderPreemptionArgs. With nodeCacheCapable the first map is null, otherwise the second."""

    pod: Raw
    node_name_to_victims: dict[NodeName, FullVictims] | None
    node_name_to_meta_victims: dict[NodeName, MetaVictims] | None

    def victims(self) -> dict[NodeName, Victims]:
        """Returns the candidates by node, from the map that was sent."""
        if self.node_name_to_meta_victims is not None:
            return {
                node: Victims([pod.uid for pod in meta.pods or ()], meta.budget_violations)
                for node, meta in self.node_name_to_meta_victims.items()
            }
        return {
            node: Victims([pod.metadata.uid for pod in full.pods or ()], full.budget_violations)
            for node, full in (self.node_name_to_victims or {}).items()
        }


class PreemptCall(NamedTuple):
    """The pod that kube-scheduler preempts for, and the candidate victims by node."""

    pod: Pod
    victims: Mapping[NodeName, Victims]


class _NodesAnswer(Struct):
    items: Sequence[Raw]
    metadata: dict[str, str] = field(default_factory=dict)


class _FilterAnswer(Struct, rename="pascal"):
    nodes: _NodesAnswer | None
    node_names: Sequence[str] | Raw | None
    failed_nodes: Mapping[str, str]
    failed_and_unresolvable_nodes: Mapping[str, str]
    error: str


class _Score(Struct, rename="pascal"):
    host: str
    score: int


_filter_calls = msgspec.json.Decoder(_FilterCall)
_prioritize_calls = msgspec.json.Decoder(_PrioritizeCall)
_named_calls = msgspec.json.Decoder(_NamedCall)
_pods = msgspec.json.Decoder(Pod)
_names = msgspec.json.Decoder(list[NodeName] | None)
_bind_calls = msgspec.json.Decoder(BindCall)
_preempt_calls = msgspec.json.Decoder(_PreemptCall)
_nodes = msgspec.json.Decoder(_Node)
_encode = msgspec.json.Encoder().encode
_BOUND = b'{"Error":""}'
_NONE: Mapping[str, str] = {}


def _decode(decoder: msgspec.json.Decoder[T], body: bytes | Raw, within: str = "") -> T:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _wrong_shape(str(error), within) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(ProblemKind.NOT_JSON, f"{error} ({len(memoryview(body))} bytes were read)") from None


def _wrong_shape(complaint: str, within: str) -> Problem:
    """Returns the problem for msgspec's message: Expected `int`, got `str` - at `$.Pod.spec`."""
    what, _, where = complaint.partition(" - at `$")
    path = (within + where.rstrip("`")).lstrip(".")
    at = [path] if path else []
    if what.startswith("Object missing required field `"):
        at.append(what.split("`")[1])
        what += ". Keys must match kube-scheduler's exactly, including upper and lower case"
    return Problem(ProblemKind.WRONG_SHAPE, what, field=dotted(at) or None)


def read_filter_call(body: bytes) -> FilterCall:
    """Returns the call of a filter body: a pod with UID, and names or nodes. Raises Problem."""
    if (named := _read_named_call(body)) is not None:
        return named
    call = _decode(_filter_calls, body)
    pod, names = _read_pod(bytes(call.pod)), _read_names(call)
    if names is not None:
        return FilterCall(pod, names)
    items = (call.nodes.items if call.nodes is not None else None) or []
    found = [_name_of(index, _decode(_nodes, item, _item(index))) for index, item in enumerate(items)]
    return FilterCall(pod, found, dict(zip(found, items, strict=True)))


def read_prioritize_call(body: bytes) -> FilterCall:
    """Returns the call of a prioritize body, as `read_filter_call`. Raises Problem."""
    if (named := _read_named_call(body)) is not None:
        return named
    call = _decode(_prioritize_calls, body)
    pod, names = _read_pod(bytes(call.pod)), _read_names(call)
    if names is not None:
        return FilterCall(pod, names)
    items = (call.nodes.items if call.nodes is not None else None) or []
    return FilterCall(pod, [_name_of(index, node) for index, node in enumerate(items)])


def _read_named_call(body: bytes) -> FilterCall | None:
    """Returns a call with names laid out as by kube-scheduler, without decoding the names.

    None: decode the whole body, which also finds what is wrong with it."""
    cut = cut_out(body)
    if cut is None:
        return None
    rest, names = cut
    try:
        call = _named_calls.decode(rest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return FilterCall(_read_pod(bytes(call.pod)), names)


def _read_pod(sent: bytes) -> Pod:
    """Returns the pod, which has a UID. It is shared: never change it. Raises Problem."""
    return _remembered_pod(sent) if len(sent) <= _LARGEST_POD else _pod(sent)


def _pod(sent: bytes) -> Pod:
    pod = _decode(_pods, _outlined(sent), "Pod")
    _require("Pod.metadata.uid", pod.metadata.uid)
    return pod


def _outlined(sent: bytes) -> bytes | Raw:
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return outlined(sent)
    # The full decoding reports what is wrong with the pod.
    return sent


_remembered_pod = lru_cache(maxsize=_SCHEDULERS)(_pod)


def _read_names(call: _FilterCall | _PrioritizeCall) -> Sequence[NodeName] | None:
    """Returns the names; None if the nodes came in full. Raises Problem."""
    names = sent_names(call.node_names) or _decode(_names, call.node_names, "NodeNames")
    if names is None and call.nodes is None:
        raise Problem(
            ProblemKind.WRONG_SHAPE, "both NodeNames and Nodes are null; one of them is needed", field="NodeNames"
        )
    return names


def _item(index: int) -> str:
    return f"Nodes.items[{index}]"


def _name_of(index: int, node: _Node) -> NodeName:
    name = node.metadata.name
    if not name:
        _require(f"{_item(index)}.metadata.name", name)
    return name


def read_bind_call(body: bytes) -> BindCall:
    """Returns the call of a bind body, which has no empty field. Raises Problem."""
    call = _decode(_bind_calls, body)
    _require("PodName", call.pod_name)
    _require("PodNamespace", call.pod_namespace)
    _require("PodUID", call.pod_uid)
    _require("Node", call.node)
    return call


def read_preempt_call(body: bytes) -> PreemptCall:
    """Returns the call of a preempt body; its pod has a UID. Raises Problem."""
    call = _decode(_preempt_calls, body)
    pod = _read_pod(bytes(call.pod))
    if call.node_name_to_meta_victims is None and call.node_name_to_victims is None:
        raise Problem(
            ProblemKind.WRONG_SHAPE,
            "both NodeNameToMetaVictims and NodeNameToVictims are null; one of them is needed",
            field="NodeNameToMetaVictims",
        )
    return PreemptCall(pod, call.victims())


def _require(where: str, value: str) -> None:
    if not value:
        raise Problem(ProblemKind.WRONG_SHAPE, f"{where} is empty", field=where)


def filter_answer(verdict: Verdict, sent: Mapping[NodeName, Raw] | None) -> bytes:
    """Returns an ExtenderFilterResult. `sent`: the bytes of nodes that came in full, sent back.

    If a node passed, the answer has no reasons for the others: kube-scheduler uses them only if no node passed. Writing
    and reading thousands of reasons is most of the cost of such a call."""
    passed = verdict.passed
    nodes: _NodesAnswer | None = None
    names: Sequence[str] | Raw | None = None
    if not verdict.error:
        if sent is None:
            names = passed.raw if isinstance(passed, LazyNodeNames) else list(passed)
        else:
            nodes = _NodesAnswer([sent[name] for name in passed])
    rejected, unresolvable = (_NONE, _NONE) if passed else (_dict(verdict.rejected), _dict(verdict.unresolvable))
    return _encode(_FilterAnswer(nodes, names, rejected, unresolvable, verdict.error))


def prioritize_answer(scores: Mapping[NodeName, int]) -> bytes:
    """Returns a HostPriorityList. A missing host counts as 0, so zeros are not sent."""
    return _encode([_Score(node, score) for node, score in scores.items() if score])


def bind_answer(error: str) -> bytes:
    """Returns an ExtenderBindingResult."""
    return _encode({"Error": error}) if error else _BOUND


def preempt_answer(victims: Mapping[NodeName, Victims]) -> bytes:
    """Returns an ExtenderPreemptionResult: the nodes on which to preempt, and the victims' UIDs."""
    return _encode(
        {
            "NodeNameToMetaVictims": {
                node: MetaVictims([MetaPod(uid) for uid in who.pods], who.budget_violations)
                for node, who in victims.items()
            }
        }
    )


def _dict(reasons: Mapping[Any, str]) -> Mapping[str, str]:
    return reasons if isinstance(reasons, dict) else dict(reasons)
