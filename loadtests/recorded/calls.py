"""Calls: the bodies that kube-scheduler sent, filled for new pods.

    [call] = select(load(), verb="filter", kind="gang", profile="escher-ledger", whole=False, cluster=5000)
    ready = call.prepare(random.Random(7))
    client.post("/scheduler/filter", data=ready.body("load-1", uid, gang="load"))

A call is the recorded JSON with placeholders for what differs between pods and between nodes. Its list of nodes is
stored as a number of equal nodes and a few different ones. It is drawn again from as many nodes as the cluster had,
`node-0`, `node-1` and so on. Their order is random, because a real scheduler's order differs between calls too.

It imports only the standard library, because Locust has an environment of its own.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

FILE = Path(__file__).with_name("calls.jsonl.gz")

VERBS = ("filter", "prioritize", "bind", "preempt")
KINDS = ("ordinary", "ephemeral", "gang", "urgent")
"""Of pods: ordinary; asks for an ephemeral resource; member of a gang of four; preempts others."""

NODES_IN_RACK, NODES_IN_ZONE = 20, 100
"""As `lab.controlplane.nodes` spreads them."""

_PLACEHOLDER = re.compile(r"<(uid|node|number|rack|zone|ip|version|time)>")
_TIME = "2026-01-01T00:00:00Z"


@dataclass(frozen=True)
class Sent:
    """The nodes in a call: `alike` nodes with the shape `shape`, and `these`, each with its own.

    A shape is a Node or the victims on one, as JSON with placeholders; it is empty if only names are sent."""

    alike: int
    shape: str
    these: tuple[tuple[int, str], ...]

    @property
    def count(self) -> int:
        return self.alike + len(self.these)


@dataclass(frozen=True)
class Call:
    """`text`: the body with placeholders, `"<sent>"` for the nodes. `whole`: nodes are objects."""

    verb: str
    kind: str
    profile: str
    whole: bool
    cluster: int
    text: str
    sent: Sent | None

    def prepare(self, rng: random.Random) -> Ready:
        """The call with nodes drawn by `rng`; only the pod is missing."""
        text = _filled(self.text, rng.randrange(self.cluster), rng)
        head, _, tail = text.partition('"<sent>"')
        return Ready(self, head, _drawn(self, rng).encode(), tail)


@dataclass(frozen=True)
class Ready:
    """A call that can be sent for any pod, at low cost."""

    call: Call
    head: str
    nodes: bytes
    tail: str

    def body(self, pod: str, uid: str, gang: str = "gang") -> bytes:
        """The body for the pod with that name and UID, a member of that gang if it is one."""

        def of_pod(text: str) -> bytes:
            return text.replace("<pod>", pod).replace("<pod-uid>", uid).replace("<gang>", gang).encode()

        return b"".join((of_pod(self.head), self.nodes, of_pod(self.tail)))


def load(file: Path = FILE) -> list[Call]:
    """All recorded calls."""
    shapes, *lines = map(json.loads, gzip.decompress(file.read_bytes()).splitlines())
    calls = []
    for line in lines:
        sent = line.pop("sent")
        if sent is not None:
            these = tuple((number, shapes[shape]) for number, shape in sent["these"])
            sent = Sent(sent["alike"], shapes[sent["shape"]], these)
        calls.append(Call(**line, sent=sent))
    return calls


def save(calls: Iterable[Call], file: Path = FILE) -> None:
    """Writes the calls; the same calls give the same bytes. Each shape is written once."""
    shapes: dict[str, int] = {}
    lines = []
    for call in calls:
        line = asdict(call)
        if call.sent is not None:
            these = [[number, shapes.setdefault(shape, len(shapes))] for number, shape in call.sent.these]
            shape = shapes.setdefault(call.sent.shape, len(shapes))
            line["sent"] = {"alike": call.sent.alike, "shape": shape, "these": these}
        lines.append(line)
    text = "".join(json.dumps(line) + "\n" for line in [list(shapes), *lines])
    file.write_bytes(gzip.compress(text.encode(), mtime=0))


def select(calls: Iterable[Call], **wanted: str | int | bool) -> list[Call]:
    """The calls that have these values in these fields."""
    return [call for call in calls if all(getattr(call, name) == value for name, value in wanted.items())]


def _drawn(call: Call, rng: random.Random) -> str:
    if call.sent is None:
        return ""
    taken = dict(call.sent.these)
    others = [number for number in range(call.cluster) if number not in taken]
    nodes = [*taken.items(), *((number, call.sent.shape) for number in rng.sample(others, call.sent.alike))]
    rng.shuffle(nodes)
    if call.verb == "preempt":
        victims = (f'"node-{number}":{_filled(shape, number, rng)}' for number, shape in nodes)
        return "{" + ",".join(victims) + "}"
    items = (_filled(shape, number, rng) if call.whole else f'"node-{number}"' for number, shape in nodes)
    return "[" + ",".join(items) + "]"


def _filled(text: str, number: int, rng: random.Random) -> str:
    """The text with each placeholder replaced by its value on that node."""

    def value(found: re.Match[str]) -> str:
        match found[1]:
            case "uid":
                return str(uuid.UUID(int=rng.getrandbits(128), version=4))
            case "node":
                return f"node-{number}"
            case "rack":
                return f"rack-{number // NODES_IN_RACK}"
            case "zone":
                return f"zone-{number // NODES_IN_ZONE}"
            case "ip":
                return f"10.64.{number // 250}.{number % 250 + 1}"
            case "version":
                return str(200 + number)
            case "time":
                return _TIME
            case _:
                return str(number)

    return _PLACEHOLDER.sub(value, text)
