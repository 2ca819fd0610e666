"""Measures the verbs over HTTP, ours and the reference extender's in Go, with alternating calls.

One client calls both over persistent connections and takes the time. Its own time and the kernel's are in both, so
ratios of short calls are nearer to 1 than the servers' own. Calls are recorded ones (loadtests/recorded), each for a
new pod, with its nodes in a new order. Whole nodes get images until they are as large as a kubelet's.

The service knows an embedded cluster of 5,000 nodes. If one node is feasible, only that node has an ephemeral resource,
and the reference gets it by its --offer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from http.client import OK
from itertools import count
from random import Random
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from msgspec import Struct

from extender.core.names import ephemeral_name
from extender.shipped.errors import ClusterError
from extender.shipped.progress import Progress
from lab.compare.costs import cpu_seconds
from lab.compare.reporting.figures import estimate, mean, ratio
from lab.controlplane.clusters import EmbeddedCluster
from lab.controlplane.nodes import NodeShape
from loadtests import reference
from loadtests.chaos.load import NAMESPACE
from loadtests.goals.measuring import rows
from loadtests.goals.measuring.connection import Answer, Connection, request
from loadtests.goals.measuring.cores import Pinned
from loadtests.goals.measuring.interleaved import Interleaved, Taken
from loadtests.goals.measuring.measured import Measured, of_estimate
from loadtests.load.results.samples import usage
from loadtests.load.run import until_known
from loadtests.recorded.calls import Call, Ready, load, select
from loadtests.shared.ledger import Service
from loadtests.shared.progress import say

Json = dict[str, Any]
T = TypeVar("T")

ITSELF = "the reference over itself"
NODES = 5000
NODE_BYTES = 6000
_SAMPLING, _ALL = "escher", "escher-ledger"
_SHAPE = NodeShape(cpu="100000", memory="1Pi", pods=100_000)
"""Unseen pods, thousands of them, hold room on the one feasible node until they are dropped."""
_RESOURCE, _UNITS = "data1", 1_000_000
_IMAGE_BYTES = 190_000_000
_CYCLES, _WARM_UP = 8, 50
_LOOKS, _EVERY, _STILL = 10, 1.0, 0.01


@dataclass(frozen=True, slots=True)
class Asked:
    """What a row measures: `nodes` are sent, `feasible` must pass; None: the verb is prioritize."""

    row: str
    verb: str
    nodes: int
    kind: str = "ordinary"
    profile: str = _ALL
    whole: bool = False
    feasible: int | None = None
    calls: int = 20
    """Calls of a block."""

    @property
    def call(self) -> Call:
        return select(load(), verb=self.verb, kind=self.kind, profile=self.profile, whole=self.whole, cluster=NODES)[0]

    def check(self, ours: Answer, theirs: Answer) -> None:
        """Raises ClusterError unless both answers are right, and equal for a filter call."""
        if self.feasible is None:
            both = [scored(ours), scored(theirs)]
            right = len(both[0]) <= len(both[1]) == self.nodes
        else:
            both = [passed(ours), passed(theirs)]
            right = set(both[0]) == set(both[1]) and len(both[0]) == self.feasible
        if not right:
            many = " and the reference with ".join(f"{len(nodes)} nodes" for nodes in both)
            raise ClusterError(f"{self.row}: the service answers with {many}")


AT_REST: Sequence[Asked] = (
    Asked(rows.FILTER_SAMPLE, "filter", 500, profile=_SAMPLING, feasible=500),
    Asked(rows.FILTER_ALL, "filter", 5000, feasible=5000),
    Asked(rows.PRIORITIZE_SAMPLE, "prioritize", 500, profile=_SAMPLING),
    Asked(rows.PRIORITIZE_ALL, "prioritize", 5000),
    Asked(rows.FILTER_WHOLE, "filter", 1000, whole=True, feasible=1000, calls=2),
    Asked(rows.PRIORITIZE_WHOLE, "prioritize", 1000, whole=True, calls=2),
)
"""Measured while nothing is held or reserved."""
ONE_FEASIBLE = Asked(rows.FILTER_ONE, "filter", 5000, kind="ephemeral", feasible=1)
LARGEST = Asked(rows.ANSWERED, "filter", 5000, whole=True, feasible=5000)


def measures(*, blocks: int = 30, seed: int = 1, pin: bool = True) -> Iterator[Measured]:
    """Measures `blocks` blocks of each. Raises ClusterError at a failed start or a wrong answer."""
    program = reference.built(Progress())
    with ExitStack() as stack:
        pinned = stack.enter_context(Pinned(wanted=pin))
        say(f"starting an embedded cluster of {NODES} nodes; {pinned}")
        cluster = stack.enter_context(EmbeddedCluster.start(nodes=NODES, node_shape=_SHAPE))
        offer = _only_on_one_node(cluster)
        url, pid = stack.enter_context(reference.started(program, "--offer", offer))
        pinned.as_client()
        service, random = cluster.pids()["service"], Random(seed)
        with closing(Connection(cluster.service_url)) as ours:
            yield from of_memory(ours, service, random)
        # The error of the measurement itself: a ratio of equal sides.
        itself = _measured(AT_REST[0], (url, pid), (url, pid), blocks, random)
        yield of_estimate(ITSELF, itself.passed.ratio)
        # Keep it last: its pods are held on its node, which would disturb all other rows.
        for asked in (*AT_REST, ONE_FEASIBLE):
            found = _measured(asked, (cluster.service_url, service), (url, pid), blocks, random)
            say(f"{asked.row}: ours and the reference {found.passed.milliseconds}; CPU {found.spent.milliseconds}")
            yield of_estimate(asked.row, found.passed.ratio)
            yield of_estimate(f"{asked.row}, CPU", found.spent.ratio)


def _measured(asked: Asked, ours: tuple[str, int], theirs: tuple[str, int], blocks: int, random: Random) -> Taken:
    """`ours`, `theirs`: URL and process."""
    # New connections: TCP keeps state. After bodies of 30 MB, those of 60 KB took 2.5 ms longer.
    with closing(Connection(ours[0])) as one, closing(Connection(theirs[0])) as other:
        spent = partial(cpu_seconds, ours[1]), partial(cpu_seconds, theirs[1])
        return Interleaved(one.ask, other.ask, asked.check, spent=spent, random=random).run(
            questions(asked, random), blocks, asked.calls
        )


def _only_on_one_node(cluster: EmbeddedCluster) -> str:
    """Gives the recorded pods' ephemeral resource to one node; returns RESOURCE=NODE."""
    with closing(Service(cluster.service_url)) as service:
        until_known(service, NODES)
        asked = {"capacity": _UNITS, "node_spec": {}, "num_nodes": 1}
        answer = service.call("PUT", f"/v1/namespaces/{NAMESPACE}/resources/{_RESOURCE}", asked)
    (node,) = answer["nodes"]
    return f"{ephemeral_name(NAMESPACE, _RESOURCE).key()}={node}"


# -- what is asked ---------------------------------------------------------------------------------------------------


def questions(asked: Asked, random: Random) -> Callable[[], bytes]:
    """Returns a maker of whole requests, each for a new pod."""
    numbers, call = count(), asked.call
    nodes = whole_nodes(call, random)[: asked.nodes] if asked.whole else []

    def question() -> bytes:
        ready = call.prepare(random) if not asked.whole else _with(first, random.sample(nodes, len(nodes)))
        pod = ready.body(f"goal-{next(numbers)}", str(UUID(int=random.getrandbits(128), version=4)))
        return request(f"/scheduler/{asked.verb}", pod)

    first = call.prepare(random)
    return question


def _with(ready: Ready, nodes: Sequence[bytes]) -> Ready:
    return replace(ready, nodes=b"[" + b",".join(nodes) + b"]")


def whole_nodes(call: Call, random: Random) -> list[bytes]:
    """Returns all nodes that the call sends, each of NODE_BYTES or a little more."""
    nodes: list[Json] = msgspec.json.decode(call.prepare(random).nodes)
    images = _images(NODE_BYTES - min(len(msgspec.json.encode(node)) for node in nodes))
    for node in nodes:
        node["status"]["images"] = images
    return [msgspec.json.encode(node) for node in nodes]


def _images(size: int) -> list[Json]:
    """Returns images as a kubelet reports them, of `size` bytes or a little more."""
    images = list[Json]()
    while len(msgspec.json.encode(images)) < size:
        name = f"registry.example/team-{len(images)}/application-{len(images)}"
        digest = sha256(name.encode()).hexdigest()
        images.append({"names": [f"{name}@sha256:{digest}", f"{name}:v1.{len(images)}"], "sizeBytes": _IMAGE_BYTES})
    return images


# -- what is answered ------------------------------------------------------------------------------------------------


class _Metadata(Struct):
    name: str


class _Node(Struct):
    metadata: _Metadata


class _Nodes(Struct):
    items: list[_Node] | None


class _Filtered(Struct, rename="pascal"):
    nodes: _Nodes | None
    node_names: list[str] | None
    error: str

    @property
    def passed(self) -> list[str]:
        whole = [] if self.nodes is None else self.nodes.items or []
        return [*(self.node_names or []), *(node.metadata.name for node in whole)]


class _Score(Struct, rename="pascal"):
    host: str


_filtered, _scores = msgspec.json.Decoder(_Filtered), msgspec.json.Decoder(list[_Score])


def passed(answer: Answer) -> list[str]:
    """Returns the nodes that a filter call left. Raises ClusterError for another answer."""
    found = _read(_filtered, answer)
    if found.error:
        raise ClusterError(f"a filter call was answered with the error {found.error!r}")
    return found.passed


def scored(answer: Answer) -> list[str]:
    """Returns the nodes with a score from prioritize: omitted ones have 0. Raises ClusterError."""
    return [each.host for each in _read(_scores, answer)]


def _read(decoder: msgspec.json.Decoder[T], answer: Answer) -> T:
    if answer.status != OK:
        raise ClusterError(f"a call was answered with status {answer.status}: {answer.body[:200]!r}")
    try:
        return decoder.decode(answer.body)
    except msgspec.DecodeError as error:
        raise ClusterError(f"a call was answered with {answer.body[:200]!r}: {error}") from None


# -- memory ----------------------------------------------------------------------------------------------------------


def of_memory(service: Connection, pid: int, random: Random) -> Iterator[Measured]:
    """Whether calls with 5,000 whole nodes succeed, and memory after them over that before them."""
    say(f"measuring {rows.MEMORY_AFTER}")
    small, large = questions(AT_REST[0], random), questions(LARGEST, random)
    for _ in range(_WARM_UP):
        passed(service.ask(small()))
    before = settled(partial(_resident, pid))
    answered, after = dict[int, list[float]](), dict[int, list[float]]()
    for cycle in range(_CYCLES):
        answered[cycle] = [float(len(passed(service.ask(large()))) == LARGEST.feasible)]
        after[cycle] = [settled(partial(_resident, pid))]
    found, left = estimate(answered, mean), ratio(after, {cycle: [before] for cycle in after})
    assert found is not None
    assert left is not None
    yield of_estimate(rows.ANSWERED, found)
    yield of_estimate(rows.MEMORY_AFTER, left)


def settled(read: Callable[[], float], sleep: Callable[[float], None] = time.sleep) -> float:
    """Returns the value when it has stopped falling, or the last of ten, a second apart."""
    last = read()
    for _ in range(_LOOKS - 1):
        sleep(_EVERY)
        before, last = last, read()
        if last > before * (1 - _STILL):
            break
    return last


def _resident(pid: int) -> float:
    """Returns MiB."""
    found = usage(pid)
    if found is None:
        raise ClusterError("the service has ended")
    return found.resident_mib
