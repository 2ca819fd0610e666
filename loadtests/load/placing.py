"""Placing: creates pods, places them with kube-scheduler's recorded calls, and deletes them.

    placer = Placer(api, crowd, wires(load()), ask, tell, user="u1", rng=random.Random(1))
    placer.one_more("gang")

These pods have a separate scheduler name, SCHEDULER. The service counts it among its own, and no real scheduler of the
cluster serves it. This module plays that scheduler. It computes which nodes have room from what it assumed (`Crowd`),
as kube-scheduler does, and sends those nodes. It sends members of a gang one after the other, and their binds wait in
parallel. A refused pod is sent again after RETRY. Standard library only, which gevent may patch to be cooperative.
"""

from __future__ import annotations

import http.client
import json
import random
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from loadtests.recorded.calls import Call, Ready, select
from loadtests.shared.reading import Amounts, amounts, requests_of

Json = dict[str, Any]

SCHEDULER = "load-test"
NAMESPACE = "default"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
MEMBERS = 4
"""Members of a gang, as recorded."""
RETRY = 1.0
"""Seconds, as kube-scheduler's first back-off."""
PATIENCE = 45.0
"""Seconds after which a pod or gang counts as a failure, because there is room for it."""
MOST_CPU, MOST_SHARE = 400, 0.5
"""The CPUs, or the share of the cluster's, above which the oldest placed unit is deleted."""

IN_VAIN = "in-vain"
"""The kind of pods that request what no node has."""

_RECORDED_AS = "escher-ledger"
_SET_BY_API_SERVER = ("uid", "resourceVersion", "generation", "creationTimestamp")

Ask = Callable[[str, str, bytes], Json | list[Json] | None]
"""Verb, kind of pod and body to answer; None if there was no usable answer."""
Tell = Callable[[str, str, float, str], None]
"""Kind (`pod` or `gang`), name and seconds of several calls, and why they failed, or ""."""


@dataclass(frozen=True)
class Target:
    """The cluster: access to its API server, and its nodes, which are all alike."""

    url: str
    token: str
    authority: str
    nodes: int
    each: Mapping[str, str]
    """Each node's allocatable, as Kubernetes quantities."""

    def write(self, file: Path) -> None:
        file.touch(mode=0o600)
        file.write_text(json.dumps(asdict(self)))

    @staticmethod
    def read(file: Path) -> Target:
        return Target(**json.loads(file.read_text()))


class Refused(Exception):
    """The API server refused or failed a request."""


class ApiServer:
    """Creates and deletes pods, over a persistent connection. For one caller at a time."""

    def __init__(self, target: Target) -> None:
        parts = urlsplit(target.url)
        trust = ssl.create_default_context(cadata=target.authority)
        self._connection = http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=60, context=trust)
        self._headers = {"Authorization": f"Bearer {target.token}", "Content-Type": "application/json"}

    def create(self, pod: Json) -> str:
        """Returns the new pod's UID. Raises Refused."""
        status, answer = self._call("POST", PODS, json.dumps(pod))
        if status != 201:
            raise Refused(f"creating a pod: {status} {answer.get('message')}")
        uid: str = answer["metadata"]["uid"]
        return uid

    def delete(self, name: str) -> None:
        """Deletes the pod if it exists. Raises Refused."""
        status, answer = self._call("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0", None)
        if status not in (200, 202, 404):
            raise Refused(f"deleting a pod: {status} {answer.get('message')}")

    def close(self) -> None:
        self._connection.close()

    def _call(self, method: str, path: str, body: str | None) -> tuple[int, Json]:
        try:
            self._connection.request(method, path, body, self._headers)
            answer = self._connection.getresponse()
            return answer.status, json.loads(answer.read())
        except (OSError, http.client.HTTPException) as error:
            # The next call opens another connection.
            self._connection.close()
            raise Refused(f"{method} {path}: {error!r}") from error


@dataclass(eq=False)
class Pod:
    """`node`: where it is bound, or is to be bound."""

    name: str
    uid: str
    asks: Mapping[str, int]
    node: str | None = None
    binding: bool = False
    bound: bool = False


@dataclass(eq=False)
class Unit:
    """A pod, or a gang."""

    kind: str
    name: str
    wire: Wire
    pods: list[Pod] = field(default_factory=list)


class Wire:
    """A recorded pod as it is created in the API server, and kube-scheduler's calls for it."""

    def __init__(self, call: Call, bind: Call) -> None:
        ours = replace(call, text=call.text.replace(f'"{_RECORDED_AS}"', f'"{SCHEDULER}"'))
        self._pod = ours.prepare(random.Random(0))
        self._bind = bind

    def manifest(self, name: str, gang: str) -> Json:
        """Returns the pod, to be created."""
        sent = replace(self._pod, nodes=b"[]").body(name, "", gang)
        found: Json = json.loads(sent)["Pod"]
        for each in _SET_BY_API_SERVER:
            del found["metadata"][each]
        del found["status"]
        return {"apiVersion": "v1", "kind": "Pod", **found}

    def about(self, pod: Pod, gang: str, nodes: Sequence[str]) -> bytes:
        """Returns the body of filter and prioritize."""
        names = json.dumps(nodes, separators=(",", ":")).encode()
        return replace(self._pod, nodes=names).body(pod.name, pod.uid, gang)

    def bind(self, pod: Pod) -> bytes:
        text = self._bind.text.replace("<node>", pod.node or "")
        return Ready(self._bind, text, b"", "").body(pod.name, pod.uid)


def wires(calls: Iterable[Call]) -> dict[str, list[Wire]]:
    """Returns recorded pods by kind of pod."""
    named = select(calls, whole=False, profile=_RECORDED_AS, cluster=100)
    found = {
        kind: [Wire(each, select(named, verb="bind", kind=kind)[0]) for each in select(named, verb="filter", kind=kind)]
        for kind in ("ordinary", "ephemeral", "gang")
    }
    [asks, *_], [bind, *_] = (select(named, verb=verb, kind="ephemeral") for verb in ("filter", "bind"))
    return found | {IN_VAIN: [Wire(replace(asks, text=asks.text.replace(".data1", ".nowhere")), bind)]}


class Crowd:
    """What is placed or assumed; shared by all that place pods in one process."""

    def __init__(self, nodes: int, each: Amounts) -> None:
        self._has = _thousandths(each)
        self._free = {f"node-{number}": dict(self._has) for number in range(nodes)}
        self._names = list(self._free)
        self._next = 0
        self._cpu = 0
        self._most = min(MOST_CPU * 1000, int(MOST_SHARE * nodes * self._has["cpu"]))
        self._units: deque[Unit] = deque()

    def feasible(self, asks: Mapping[str, int]) -> list[str]:
        """Returns nodes with room, each time from the next node on, as kube-scheduler does."""
        known = [(resource, units) for resource, units in asks.items() if resource in self._has]
        self._next = (self._next + 1) % max(1, len(self._names))
        return [
            name
            for name in (*self._names[self._next :], *self._names[: self._next])
            if all(self._free[name][resource] >= units for resource, units in known)
        ]

    def assume(self, pod: Pod, node: str) -> None:
        pod.node = node
        self._add(pod, node, 1)

    def forget(self, pod: Pod) -> None:
        if pod.node is not None:
            self._add(pod, pod.node, -1)
            pod.node = None

    def _add(self, pod: Pod, node: str, sign: int) -> None:
        for resource, units in pod.asks.items():
            if resource in self._has:
                self._free[node][resource] -= sign * units
        self._cpu += sign * pod.asks["cpu"]

    def stays(self, unit: Unit) -> None:
        self._units.append(unit)

    def oldest_to_go(self) -> Unit | None:
        """Removes and returns the oldest unit if more than the limit is placed."""
        return self._units.popleft() if self._units and self._cpu > self._most else None


class Placer:
    """Plays kube-scheduler for one caller. `user`: prefix of its pods' names. Raises Refused."""

    def __init__(
        self,
        api: ApiServer,
        crowd: Crowd,
        wires: Mapping[str, Sequence[Wire]],
        ask: Ask,
        tell: Tell,
        *,
        user: str,
        rng: random.Random,
    ) -> None:
        self._api, self._crowd, self._wires, self._ask, self._tell = api, crowd, wires, ask, tell
        self._user, self._rng = user, rng
        self._made = 0

    def one_more(self, kind: str) -> None:
        """Creates and binds one more pod or gang; deletes the oldest ones above the limit.

        A unit that could not be placed is reported and deleted.
        """
        while (oldest := self._crowd.oldest_to_go()) is not None:
            self._delete(oldest)
        what, name = "gang" if kind == "gang" else "pod", f"{kind}, created to bound"
        began = time.monotonic()
        try:
            unit = self._create(kind, MEMBERS if kind == "gang" else 1)
        except Refused as refused:
            self._tell(what, name, time.monotonic() - began, str(refused))
            raise
        try:
            placed = self._place(unit, until=began + PATIENCE)
        except BaseException:
            self._crowd.stays(unit)
            raise
        failed = "" if placed else f"not bound within {PATIENCE:g} s"
        self._tell(what, name, time.monotonic() - began, failed)
        if placed:
            self._crowd.stays(unit)
        else:
            self._delete(unit)

    def leave_waiting(self, kind: str) -> Unit:
        """Creates a waiting pod that filter refuses: an unfittable one, or one member of a gang."""
        unit = self._create(kind, 1)
        [pod] = unit.pods
        self._ask("filter", kind, unit.wire.about(pod, unit.name, self._crowd.feasible(pod.asks)))
        return unit

    def _create(self, kind: str, count: int) -> Unit:
        self._made += 1
        unit = Unit(kind, f"{self._user}-{kind}-{self._made}", self._rng.choice(self._wires[kind]))
        for number in range(count):
            manifest = unit.wire.manifest(f"{unit.name}-{number}", unit.name)
            uid = self._api.create(manifest)
            unit.pods.append(Pod(manifest["metadata"]["name"], uid, _thousandths(requests_of(manifest))))
        return unit

    def _delete(self, unit: Unit) -> None:
        for pod in unit.pods:
            self._api.delete(pod.name)
            self._crowd.forget(pod)

    def _place(self, unit: Unit, until: float) -> bool:
        binding: list[threading.Thread] = []
        while True:
            for pod in unit.pods:
                if not (pod.bound or pod.binding) and self._found_a_node(unit, pod):
                    pod.binding = True
                    binding.append(threading.Thread(target=self._bind, args=(unit, pod), daemon=True))
                    binding[-1].start()
            again = min(until, time.monotonic() + RETRY)
            for each in binding:
                each.join(max(0.0, again - time.monotonic()))
            if all(pod.bound for pod in unit.pods):
                return True
            if time.monotonic() >= until:
                return False
            # Wait for binding members; a refused pod, or one whose bind failed, is tried again later.
            time.sleep(max(0.0, again - time.monotonic()))

    def _found_a_node(self, unit: Unit, pod: Pod) -> bool:
        feasible = self._crowd.feasible(pod.asks)
        if not feasible:
            return False
        answer = self._ask("filter", unit.kind, unit.wire.about(pod, unit.name, feasible))
        left: list[str] = (answer.get("NodeNames") or []) if isinstance(answer, dict) else []
        if len(left) > 1:
            left = self._best(unit, pod, left)
        # Other callers may have taken room during the call.
        free = set(self._crowd.feasible(pod.asks))
        left = [node for node in left if node in free]
        if not left:
            return False
        self._crowd.assume(pod, self._rng.choice(left))
        return True

    def _best(self, unit: Unit, pod: Pod, nodes: list[str]) -> list[str]:
        answer = self._ask("prioritize", unit.kind, unit.wire.about(pod, unit.name, nodes))
        if not isinstance(answer, list) or not answer:
            return nodes
        most = max(each["Score"] for each in answer)
        return [each["Host"] for each in answer if each["Score"] == most]

    def _bind(self, unit: Unit, pod: Pod) -> None:
        answer = self._ask("bind", unit.kind, unit.wire.bind(pod))
        pod.bound = isinstance(answer, dict) and not answer.get("Error")
        if not pod.bound:
            self._crowd.forget(pod)
        pod.binding = False


def _thousandths(of: Amounts) -> dict[str, int]:
    return {name: int(units * 1000) for name, units in of.items()}


def crowd_of(target: Target) -> Crowd:
    return Crowd(target.nodes, amounts(dict(target.each)))
