"""Yard: a namespace with four nodes of its own; policies change while pods and gangs come and go.

`work` does this without a pause. Then nothing happens any more, and every pod that could be bound must be, within
`patience` seconds (`settle`). After that `probe` makes one policy change that helps an unschedulable pod, and nothing
else: that pod and every other pod that can be bound must be, within the same time. `rules` computes what is possible.

Yards are independent: another yard's pods are on other nodes. One thread at a time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from lab.controlplane import nodes as node_objects
from lab.controlplane.api import Api, ApiError
from loadtests.policy_changes import drawing
from loadtests.policy_changes.drawing import Change, Refused
from loadtests.policy_changes.history import History, Reduced, reduced
from loadtests.policy_changes.rules import HOSTNAME, ZONE, Ground, Json, PodSeen, Policy, where
from loadtests.shared.ledger import Service

NODES = 4
MOST_UNITS = 12
"""The most pods and gangs at a time."""
_LEAST_ASLEEP = 2
_LOOK_EVERY = 0.02
_PAUSE = 0.04
"""Average seconds between two actions under load."""
_TRIES = 12

clock = time.monotonic


class Missed(Exception):
    """Something that must happen in time did not; `str()` says what."""


@dataclass
class Done:
    """What was done, and what was seen of it."""

    changes: int = 0
    refused: int = 0
    pods: int = 0
    gangs: int = 0
    deleted: int = 0
    probes: int = 0
    woken: int = 0
    """Pods that a probe made placeable, and that were then bound."""
    by_others: int = 0
    """Of these, pods that the service had not woken when they were bound."""
    wakes: list[float] = field(default_factory=list)
    """Seconds from a probe's answer until the first pod that it helps was seen bound."""
    waited: list[float] = field(default_factory=list)
    """Seconds from a probe's answer until all pods that it helps were."""
    calls: list[float] = field(default_factory=list)
    """Seconds until a change was answered."""
    missed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


class Yard:
    def __init__(
        self, name: str, api: Api, service: Service, rng: random.Random, *, patience: float, latest: float
    ) -> None:
        self.name = name
        self.done = Done()
        self._api, self._service, self._rng, self._patience = api, service, rng, patience
        self._made = 0
        self._units: list[list[str]] = []
        """Created and not deleted pods: a single pod, or a gang."""
        nodes = [f"{name}-n{number}" for number in range(NODES)]
        labels = {
            node: {HOSTNAME: node, ZONE: f"{name}-{'ab'[number // 2]}", "example.com/rank": str(number)}
            for number, node in enumerate(nodes)
        }
        data = {"d0": frozenset(nodes[:2]), "d1": frozenset(nodes[2:3])}
        self.history = History(Ground(labels, data), latest)

    # -- before and after --------------------------------------------------------------------------------------------

    def node_objects(self) -> list[Json]:
        offered = {"cpu": "32", "memory": "64Gi", "pods": "110"}
        return [
            node_objects.node(name, offered, labels={**labels, drawing.OF_YARD: self.name})
            for name, labels in self.history.ground.nodes.items()
        ]

    def begin(self) -> None:
        """Creates the namespace, with data and some policies."""
        self._api.post("/api/v1/namespaces", {"metadata": {"name": self.name}})
        for data, nodes in self.history.ground.data.items():
            for node in nodes:
                body = {"capacity": 1, "node_spec": node}
                self._service.call("PUT", f"/v1/namespaces/{self.name}/resources/{data}", body)
        for name in drawing.NAMES[1:]:
            self._change(drawing.put(name, self._rng.choice(drawing.policies_for(name))))

    def in_force(self) -> list[str]:
        """Returns where the policies in force differ from the last changes."""
        wrong = []
        told = self._service.call("GET", f"/v1/namespaces/{self.name}/policies?limit=1000")["items"]
        found = {each["name"]: each for each in told}
        policies = self.history.policies
        if found.keys() != policies.keys():
            wrong.append(f"{self.name}: there are {sorted(found)}, and should be {sorted(policies)}")
        for name in found.keys() & policies.keys():
            said, policy = found[name]["in_force"], policies[name]
            if said is None or not _says(said, policy):
                wrong.append(
                    f"{self.name}: in force of {name} is {said}, and should be {policy.type} {policy.parameters}"
                )
        return wrong

    # -- under load --------------------------------------------------------------------------------------------------

    def work(self, changes: int) -> None:
        """Makes `changes` changes, and creates and deletes pods between them."""
        goal = self.done.changes + changes
        while self.done.changes < goal:
            draw = self._rng.random()
            if draw < 0.5:
                self._change(drawing.change(self._rng, self.history.policies))
            elif draw < 0.57:
                self._be_refused(drawing.bad(self._rng, self.history.policies))
            elif draw < 0.82:
                self._create()
            else:
                self._delete()
            time.sleep(self._rng.uniform(0.0, 2 * _PAUSE))

    def _change(self, change: Change) -> float:
        """Makes the change, and returns when it was answered."""
        began = clock()
        version = self.history.begin_change(change.name, change.becomes, began)
        answer = self._service.raw(change.method, self._path(change.name), change.body)
        now = clock()
        if answer.status_code not in (200, 204):
            raise Missed(f"{change.method} {change.name} {change.body}: {answer.status_code} {answer.text}")
        self.history.end_change(version, now)
        self.done.changes += 1
        self.done.calls.append(now - began)
        return now

    def _be_refused(self, bad: Refused) -> None:
        headers = {"if_match": bad.if_match} if bad.if_match else {}
        answer = self._service.raw(bad.method, self._path(bad.name), bad.body, **headers)
        self.done.refused += 1
        if answer.status_code != bad.status:
            self.done.failed.append(f"{bad} was answered {answer.status_code}: {answer.text}")
        self.done.failed += self.in_force()

    def _path(self, policy: str) -> str:
        return f"/v1/namespaces/{self.name}/policies/{policy}"

    def _create(self) -> None:
        if len(self._units) >= MOST_UNITS:
            self._delete()
        self._made += 1
        self._post(drawing.unit(self._rng, self.name, self._made))

    def _post(self, unit: Sequence[Json]) -> None:
        self._units.append([each["metadata"]["name"] for each in unit])
        for each in unit:
            self._api.post(f"/api/v1/namespaces/{self.name}/pods", each)
        self.done.pods += len(unit)
        self.done.gangs += len(unit) > 1

    def _delete(self) -> None:
        """Deletes a random existing pod or gang."""
        if self._units:
            for name in self._units.pop(self._rng.randrange(len(self._units))):
                self._delete_pod(name)

    def _delete_pod(self, name: str) -> None:
        try:
            self._api.delete(f"/api/v1/namespaces/{self.name}/pods/{name}", gracePeriodSeconds=0)
        except ApiError as error:
            if error.status != 404:
                raise
        else:
            self.done.deleted += 1

    # -- at rest -----------------------------------------------------------------------------------------------------

    def could_be_bound(self) -> list[list[Reduced]]:
        """Returns units that wait although they could be bound."""
        history = self.history
        with history.lock:
            standing, policies = history.standing(), history.policies
            return [
                unit
                for unit in history.waiting()
                if where([each.pod for each in unit], standing, policies, history.ground) is not None
            ]

    def settle(self) -> None:
        """Returns when no pod waits without need; notes as missed what waited too long."""
        while True:
            with self.history.lock:
                units, part = self.could_be_bound(), self.history.in_part()
                if not units and not part:
                    return
                if clock() - self.history.changed_at > self._patience:
                    self._miss("under load", units, part)
                    return
                self.history.lock.wait(_LOOK_EVERY * 5)

    def _miss(self, when: str, units: Sequence[Sequence[Reduced]], part: Sequence[str]) -> None:
        """Notes them and deletes them, so that they hide no others."""
        policies = {name: (each.type, each.parameters) for name, each in self.history.policies.items()}
        standing = [(pod.name, pod.named, dict(pod.labels), node) for pod, node in self.history.standing()]
        for unit in units:
            pods = [each.pod for each in unit]
            nodes = where(pods, self.history.standing(), self.history.policies, self.history.ground)
            who = f"{self.name}/{pods[0].name} ({pods[0].named}, {dict(pods[0].labels)})"
            said = f"the service says: {self._explained(pods[0].name)}; policies {policies}; there are {standing}"
            self.done.missed.append(f"{when}, {who} could be on {nodes} and waits; {said}")
        self.done.missed += [f"{when}, {self.name}/{gang}: some are bound and some are not" for gang in part]
        for unit in units:
            names = {each.pod.name for each in unit}
            self._units = [each for each in self._units if names.isdisjoint(each)]
            for name in names:
                self._delete_pod(name)

    def _explained(self, pod: str) -> str:
        answer = self._service.raw("GET", f"/v1/namespaces/{self.name}/pods/{pod}/explain")
        return str(answer.json()["summary"]) if answer.status_code == 200 else answer.text

    def lay_bait(self) -> None:
        """Creates pods that are refused, and cannot be bound under the current policies."""
        history = self.history
        for _ in range(_TRIES):
            with history.lock:
                waiting = history.waiting()
            if len(waiting) >= _LEAST_ASLEEP:
                break
            self._made += 1
            unit = drawing.unit(self._rng, self.name, self._made)
            with history.lock:
                policies, standing = history.policies, history.standing()
            seen = [
                reduced({**each, "metadata": {**each["metadata"], "uid": "", "namespace": ""}}).pod for each in unit
            ]
            if where(seen, standing, policies, history.ground) is None:
                self._post(unit)
                self._until_turned_away({each.name for each in seen})
        self._until_turned_away({each.pod.name for unit in waiting for each in unit})

    def _until_turned_away(self, names: set[str]) -> None:
        deadline = clock() + self._patience
        with self.history.lock:
            while True:
                there = {each.pod.name: each for each in self.history.pods.values() if each.pod.name in names}
                if there.keys() == names and all(each.turned_away or each.node for each in there.values()):
                    return
                if clock() > deadline:
                    late = sorted(name for name in names if name not in there or not there[name].turned_away)
                    self.done.failed.append(f"{self.name}: {late} were never turned away")
                    return
                self.history.lock.wait(_LOOK_EVERY)

    def probe(self) -> None:
        """Makes one change that helps a waiting pod; waits until all that it helps are bound."""
        change, helped = self._helping_change()
        if change is None:
            return
        with self.history.lock:
            woken = {each.uid: each.woken for each in self.history.pods.values()}
        answered = self._change(change)
        self.done.probes += 1
        before = len(self.done.missed)
        self.settle()
        if len(self.done.missed) > before:
            self.done.missed[before:] = [f"after {change}: {each}" for each in self.done.missed[before:]]
            return
        with self.history.lock:
            bound = [each for each in self.history.pods.values() if each.uid in helped and each.node]
            if bound:
                times = [self.history.bound_at[each.pod.name] - answered for each in bound]
                self.done.wakes.append(min(times))
                self.done.waited.append(max(times))
            self.done.woken += len(bound)
            self.done.by_others += sum(each.woken == woken[each.uid] for each in bound)

    def _helping_change(self) -> tuple[Change | None, set[str]]:
        """Returns a change that lets waiting pods be bound, and the uids of these pods."""
        history = self.history
        with history.lock:
            now, standing, waiting = history.policies, history.standing(), history.waiting()
        found = drawing.all_changes(now)
        self._rng.shuffle(found)
        for change in found:
            policies: dict[str, Policy] = {name: each for name, each in now.items() if name != change.name}
            if change.becomes is not None:
                policies[change.name] = change.becomes
            helped = {
                each.uid
                for unit in waiting
                if where(_pods(unit), standing, policies, history.ground) is not None
                for each in unit
            }
            if helped:
                return change, helped
        return None, set()


def _pods(unit: Sequence[Reduced]) -> list[PodSeen]:
    return [each.pod for each in unit]


def _says(said: Json, policy: Policy) -> bool:
    """Whether this is in force, with any values for what its author left out."""
    return said["type"] == policy.type and policy.parameters.items() <= said["parameters"].items()
