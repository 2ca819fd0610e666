"""Locust's load on the filter verb of a running service, as kube-scheduler words it: 100, 1000 and 5000 node names.

`make loadtest` starts a cluster and a service for it. By hand, with Locust alone installed (requirements/load.txt):

    locust -f loadtests/locustfile.py --headless --users 4 --run-time 20s --host http://127.0.0.1:8080

A real kube-scheduler sends one filter call after the other, so one user is what a cluster sees; more show where the
service's one process is full. The pods ask for nothing of ours and exist nowhere: each user sends the same one again.
"""

from __future__ import annotations

import itertools
import json
import random
import uuid
from typing import Any

from locust import FastHttpUser, constant, task

NAMES = [f"node-{number}" for number in range(5000)]
_number = itertools.count(1)


def body(pod: dict[str, Any], names: list[str]) -> bytes:
    return json.dumps({"Pod": pod, "Nodes": None, "NodeNames": names}).encode()


class Scheduler(FastHttpUser):  # type: ignore[misc]  # Locust lives in an environment of its own, unknown to mypy here.
    """One kube-scheduler with a pod at a time."""

    wait_time = constant(0)

    def on_start(self) -> None:
        number = next(_number)
        pod = {
            "metadata": {"name": f"load-{number}", "namespace": "default", "uid": str(uuid.uuid4())},
            "spec": {
                "schedulerName": "escher",
                "containers": [{"name": "main", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}],
            },
            "status": {"phase": "Pending"},
        }
        # The order of names differs from call to call in a real scheduler too.
        shuffled = random.Random(number).sample(NAMES, len(NAMES))
        self._bodies = {size: body(pod, shuffled[:size]) for size in (100, 1000, 5000)}

    @task(3)
    def filter_100(self) -> None:
        self._filter(100)

    @task(2)
    def filter_1000(self) -> None:
        self._filter(1000)

    @task(1)
    def filter_5000(self) -> None:
        self._filter(5000)

    def _filter(self, size: int) -> None:
        with self.client.post(
            "/scheduler/filter",
            data=self._bodies[size],
            headers={"Content-Type": "application/json"},
            name=f"filter, {size} names",
            catch_response=True,
        ) as response:
            answer = response.json() if response.status_code == 200 else {}
            if response.status_code != 200 or answer.get("Error"):
                response.failure(f"{response.status_code} {answer.get('Error', '')}")
