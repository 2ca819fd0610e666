"""Template: makes a `Call` from a body as it was sent, with placeholders for what differs.

Sending the call again gives the same body, except for the replaced values: UIDs, versions, times, addresses, the names
of the pod and its gang, and which of the equal nodes were sent, in which order. `again` tests that.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from typing import Any

from loadtests.recorded.calls import NODES_IN_RACK, NODES_IN_ZONE, Call, Sent

_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_IP = re.compile(r"\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b")
_VERSION = re.compile(r'("resourceVersion":)"\d+"')
_GANG = "escher.dev/gang"
_FEW = 16
"""Up to this number of nodes are kept as they were, because their choice has a reason."""
_MOST_UNLIKE = 64

Json = Any


class Unfaithful(Exception):
    """The form of this file cannot represent what was sent."""


def template(verb: str, request: bytes, *, profile: str, whole: bool, cluster: int) -> Call:
    """The call. The pod's name has its kind: `gang-0-1` is of kind `gang`. Raises Unfaithful."""
    body = json.loads(request)
    sent = None
    if verb == "bind":
        name, uid, gang = body["PodName"], body["PodUID"], ""
        _number(body["Node"])
        body["Node"] = "<node>"
    else:
        metadata = body["Pod"]["metadata"]
        name, uid, gang = metadata["name"], metadata["uid"], metadata.get("labels", {}).get(_GANG, "")
        sent = _taken_out(verb, body, whole=whole)
    text = _dumped(body).replace(f'"{uid}"', '"<pod-uid>"').replace(f'"{name}"', '"<pod>"')
    if gang:
        text = text.replace(f'"{gang}"', '"<gang>"')
    call = Call(verb, name.partition("-")[0], profile, whole, cluster, _normal(text), sent)
    _check(call, request)
    return call


def _check(call: Call, request: bytes) -> None:
    """Compares lengths: only the digits of versions, times, numbers differ. Raises Unfaithful."""
    ready = call.prepare(random.Random(0)).body("p" * 12, "0" * 36, "g" * 8)
    if not 0.9 < (len(ready) + 50) / (len(request) + 50) < 1.1:
        raise Unfaithful(f"{call.verb} of {len(request)} bytes would be sent with {len(ready)}")


def again(call: Call, seed: int) -> Call:
    """The call, filled and read again: it is the same one, if nothing of it was lost."""
    body = call.prepare(random.Random(seed)).body(f"{call.kind}-0", "12345678-1234-4234-8234-123456789abc", "again")
    return template(call.verb, body, profile=call.profile, whole=call.whole, cluster=call.cluster)


def _taken_out(verb: str, body: Json, *, whole: bool) -> Sent:
    """The nodes, which a placeholder in the body replaces."""
    if verb == "preempt":
        key = "NodeNameToVictims" if whole else "NodeNameToMetaVictims"
        found, body[key] = body[key], "<sent>"
        return _sent([(_number(node), _dumped(victims)) for node, victims in found.items()])
    if whole:
        found, body["Nodes"]["items"] = body["Nodes"]["items"], "<sent>"
        return _sent([(_number(node["metadata"]["name"]), _dumped(node)) for node in found])
    found, body["NodeNames"] = body["NodeNames"], "<sent>"
    return _sent([(_number(node), "") for node in found])


def _sent(nodes: list[tuple[int, str]]) -> Sent:
    shaped = sorted((number, _of_node(text, number)) for number, text in nodes)
    if len(shaped) <= _FEW:
        return Sent(0, "", tuple(shaped))
    [(most, alike)] = Counter(shape for _, shape in shaped).most_common(1)
    these = tuple((number, shape) for number, shape in shaped if shape != most)
    if len(these) > _MOST_UNLIKE:
        raise Unfaithful(f"{len(these)} of {len(shaped)} nodes are unlike the others: {these[0]} and {most}")
    return Sent(alike, most, these)


def _of_node(text: str, number: int) -> str:
    said = {
        f"node-{number}": "<node>",
        f"rack-{number // NODES_IN_RACK}": "<rack>",
        f"zone-{number // NODES_IN_ZONE}": "<zone>",
        f"filler-{number}": "filler-<number>",
    }
    for value, placeholder in said.items():
        text = text.replace(f'"{value}"', f'"{placeholder}"')
    return _normal(text)


def _normal(text: str) -> str:
    text = _VERSION.sub(r'\1"<version>"', _TIME.sub("<time>", _UID.sub("<uid>", text)))
    return _IP.sub("<ip>", text)


def _number(node: str) -> int:
    found = re.fullmatch(r"node-(\d+)", node)
    if found is None:
        raise Unfaithful(f"{node!r} is not a name such as node-17")
    return int(found[1])


def _dumped(value: Json) -> str:
    # Keys keep their order, without spaces, as Go writes JSON.
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
