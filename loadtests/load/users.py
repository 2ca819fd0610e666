"""Users: Locust's users that place pods that exist, or call the management API.

Their weights give the proportions where several kinds are requested: two that place ordinary pods for each one that
places gangs or changes policies.
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from locust import FastHttpUser, between, task

from loadtests.load import managing
from loadtests.load.pace import Pace
from loadtests.load.placing import IN_VAIN, ApiServer, Crowd, Placer, Refused, Target, Wire, crowd_of, wires
from loadtests.recorded.calls import load

CLUSTER = os.environ.get("LOAD_CLUSTER", "")
"""The file that describes the cluster (`placing.Target`)."""
PACE = Pace(float(os.environ.get("LOAD_RATE") or 0))
"""Limits all calls of kube-scheduler that users make, a second."""
JSON = {"Content-Type": "application/json"}

_log = logging.getLogger(__name__)
_number = itertools.count(1)


@functools.cache
def target() -> Target:
    return Target.read(Path(CLUSTER))


@functools.cache
def crowd() -> Crowd:
    return crowd_of(target())


@functools.cache
def recorded() -> dict[str, list[Wire]]:
    return wires(load())


class Clustered(FastHttpUser):  # type: ignore[misc]  # Locust lives in an environment of its own, unknown to mypy here.
    """A user whose calls are about the cluster in LOAD_CLUSTER."""

    abstract = True
    wait_time = between(0.1, 0.5)

    def on_start(self) -> None:
        """Locust calls it before the first task, and `on_stop` after the last."""
        self.named = f"load-{type(self).__name__.lower()}-{next(_number)}"
        self.rng = random.Random(self.named)

    def on_stop(self) -> None:
        return


class Scheduling(Clustered):
    """Plays kube-scheduler for pods that exist."""

    abstract = True

    def on_start(self) -> None:
        super().on_start()
        self.api = ApiServer(target())
        self.placer = Placer(self.api, crowd(), recorded(), self.ask, self.tell, user=self.named, rng=self.rng)

    def on_stop(self) -> None:
        self.api.close()

    def ask(self, verb: str, kind: str, body: bytes) -> Any:
        PACE.turn()
        with self.client.post(
            f"/scheduler/{verb}", data=body, headers=JSON, name=f"{verb}, {kind}, live", catch_response=True
        ) as response:
            if response.status_code != 200:
                response.failure(f"{response.status_code}")
                return None
            answer = response.json()
            error = answer.get("Error") if isinstance(answer, dict) else None
            if verb == "filter" and error:
                response.failure(error)
            elif error:
                # No failure: kube-scheduler tries such a pod again, and so does this.
                response.request_meta["name"] += ", answered with an error"
                _log.warning("%s: %s", verb, error)
            elif verb == "filter" and not answer.get("NodeNames"):
                response.request_meta["name"] += ", turned away"
            return answer

    def tell(self, kind: str, name: str, seconds: float, failed: str) -> None:
        self.environment.events.request.fire(
            request_type=kind,
            name=name,
            response_time=1000 * seconds,
            response_length=0,
            exception=Refused(failed) if failed else None,
            context={},
        )


class Placing(Scheduling):
    abstract = True
    wait_time = between(0.0, 0.1)
    kind = ""

    @task
    def place(self) -> None:
        try:
            self.placer.one_more(self.kind)
        except Refused as refused:
            self.tell("API server", "create or delete a pod", 0.0, str(refused))


class OrdinaryPods(Placing):
    weight = 4
    kind = "ordinary"


class EphemeralPods(Placing):
    weight = 2
    kind = "ephemeral"


class GangPods(Placing):
    weight = 2
    kind = "gang"


class Managing(Clustered):
    """A user that calls the management API."""

    abstract = True

    def send(self, requests: Iterable[managing.Request]) -> None:
        for each in requests:
            with self.client.request(
                each.method, each.path, json=each.body, name=each.name, catch_response=True
            ) as response:
                if response.status_code not in each.statuses:
                    response.failure(f"{response.status_code} {(response.text or '')[:200]}")


class Policies(Managing):
    @task
    def change(self) -> None:
        self.send(managing.policy_cycle(self.named, self.rng))


class Resources(Managing):
    @task
    def change(self) -> None:
        self.send(managing.resource_cycle(self.named, target().nodes, self.rng))


class WhatIf(Managing):
    @task
    def ask(self) -> None:
        self.send(managing.suppositions(target().nodes, self.rng))


class Explainer(Managing, Scheduling):
    """Asks about a pod that waits for what no node has, and a gang that waits for its members."""

    def on_start(self) -> None:
        super().on_start()
        [pod] = self.placer.leave_waiting(IN_VAIN).pods
        self.asked = pod.name, self.placer.leave_waiting("gang").name

    @task
    def explain(self) -> None:
        self.send(managing.explanations(*self.asked))
