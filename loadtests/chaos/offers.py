"""Offers: sets and deletes ephemeral resources through the service, with or without owner or TTL.

At the end there must be the resources without owner and time to live that were not taken back.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import httpx

from loadtests.chaos.crowd import Crowd, Seen
from loadtests.chaos.load import NAMESPACE, STANDING
from loadtests.chaos.patience import insist

NODES_OF_RACK = 20
_UNITS_OF_STANDING = 6
_BETWEEN = (0.2, 0.9)
"""Seconds between two calls."""
_MOST_LASTING = 12

Json = dict[str, Any]


class Away(httpx.TransportError):
    """The service answers that it cannot do it now; treated like no answer."""


class Offered:
    """Sets resources through the service. `expected`: by name, the nodes and units that must be."""

    def __init__(self, url: str) -> None:
        self.expected: dict[str, Mapping[str, int]] = {}
        self.failures: list[str] = []
        self._client = httpx.Client(base_url=url, timeout=30, trust_env=False)

    def set(self, name: str, units: int, where: object, *, lasting: bool = True, **more: object) -> None:
        """Sets it; if `lasting`, it stays until it is taken back. `where`: the `node_spec`."""
        answer = self.put(name, {"capacity": units, "node_spec": where, **more})
        if answer.is_error:
            self.failures.append(f"PUT {name}: {answer.status_code} {answer.text}")
        elif lasting:
            self.expected[name] = answer.json()["nodes"]

    def set_together(self, names: Sequence[str], units: int, where: object) -> None:
        """Sets all of them or none, until they are taken back; the call is made once."""
        each = {"op": "set", "namespace": NAMESPACE, "capacity": units, "node_spec": where}
        answer = self._client.post("/v1/transactions", json={"operations": [{**each, "name": name} for name in names]})
        if not answer.is_error:
            self.expected |= {said["name"]: said["nodes"] for said in answer.json()["resources"].values()}
        elif answer.status_code != 503:
            self.failures.append(f"POST transactions: {answer.status_code} {answer.text}")

    def take_back(self, name: str) -> None:
        answer = insist(lambda: self._call("DELETE", name))
        if answer.is_error and answer.status_code != 404:
            self.failures.append(f"DELETE {name}: {answer.status_code} {answer.text}")
        del self.expected[name]

    def take_back_all(self) -> None:
        for name in list(self.expected):
            self.take_back(name)

    def put(self, name: str, body: Json) -> httpx.Response:
        """The answer, as soon as there is one."""
        return insist(lambda: self._call("PUT", name, body))

    def close(self) -> None:
        self._client.close()

    def _call(self, method: str, name: str, body: Json | None = None) -> httpx.Response:
        answer = self._client.request(method, f"/v1/namespaces/{NAMESPACE}/resources/{name}", json=body)
        if answer.status_code in (429, 502, 503, 504):
            raise Away(f"{answer.status_code} {answer.text}")
        return answer


def owners_among(pods: Iterable[Seen]) -> list[Seen]:
    """Pods that run and will end: the resources that they own must be gone at the end."""
    running = (pod for pod in pods if pod.node and not (pod.finished or pod.quorum or pod.lasts))
    return sorted(running, key=lambda pod: pod.name)


class Offers(Offered):
    """Sets resources and takes them back all the time. `owners`: some get a pod as owner."""

    def __init__(self, url: str, crowd: Crowd, rng: random.Random, *, nodes: int, owners: bool) -> None:
        super().__init__(url)
        self.count = 0
        self._crowd = crowd
        self._rng = rng
        self._nodes = nodes
        self._kinds = ("ttl", "plain", "back", *(("owned",) if owners else ()))
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Sets what pods ask for; begins to set and take back the others."""
        racks = min(2, (self._nodes + NODES_OF_RACK - 1) // NODES_OF_RACK)
        for number, name in enumerate(STANDING):
            where = {"labels": {"escher.dev/rack": f"rack-{number % racks}"}}
            self.set(name, _UNITS_OF_STANDING, where)
        self._thread.start()

    def end(self) -> None:
        """Ends all setting and taking back."""
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._ending.wait(self._rng.uniform(*_BETWEEN)):
                self._one()
        except Exception as error:  # Whatever it is, the run has failed, and says so at its end.
            self.failures.append(f"setting resources ended: {type(error).__name__}: {error}")

    def _one(self) -> None:
        self.count += 1
        kind, name, node = self._rng.choice(self._kinds), f"r{self.count}", f"node-{self._rng.randrange(self._nodes)}"
        units = self._rng.randint(1, 9)
        lasting = [each for each in self.expected if each not in STANDING]
        if kind == "ttl":
            self.put(name, {"capacity": units, "node_spec": node, "ttl_seconds": round(self._rng.uniform(1, 5), 1)})
        elif kind == "owned":
            with self._crowd.changed:
                owners = owners_among(self._crowd.pods.values())
            if owners:
                owner = self._rng.choice(owners)
                said = {"name": owner.name, "uid": owner.uid}
                self.put(name, {"capacity": units, "node_spec": node, "owner": said})
        elif kind == "back" or len(lasting) >= _MOST_LASTING:
            if lasting:
                self.take_back(self._rng.choice(lasting))
        else:
            self.set(name, units, node)
