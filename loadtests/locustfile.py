"""Locust's load on a running service or any other extender, as kube-scheduler words it.

`make loadtest` starts a cluster and a service for it. By hand, from the checkout's folder, with Locust alone installed
(requirements/load.txt):

    locust -f loadtests/locustfile.py --headless --users 4 --run-time 20s --host http://127.0.0.1:8080 Scheduler

The names at the end say who asks; without one all of them do:

    Scheduler       filter for ordinary pods, with 100, 500 and 5000 node names
    Sampling        the same as the default sampling makes it: some of those names
    Ephemeral       filter for pods that ask for one unit of escher.dev/default.data1
    Gangs           filter for members of gangs of four, none of which ever comes further
    WholeNodes      filter for ordinary pods, with 100, 500 and 5000 whole nodes (2 KB each)
    Scorer          prioritize, with names
    Preemptor       preempt, with names and the victims' UIDs
    Binder          bind; told apart from those that were written are those that were answered with an error

With the environment variable REFERENCE each call goes to that URL as well, to the one or to the other first, and in the
end the medians and their ratio are told; `python -m loadtests.reference --bind-without-writing` is a plain extender in
Go. Locust's own time is in both, so that the ratio of short calls is nearer to 1 than it would be without.

What is sent was recorded from a real kube-scheduler (loadtests/recorded); names and UIDs of pods are new in each call.
These pods exist nowhere. A real kube-scheduler sends one filter call after the other, so one user is what a cluster
sees; more show where the service's one process is full.
"""

from __future__ import annotations

import functools
import itertools
import os
import random
import statistics
import sys
import uuid
from array import array
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from locust import FastHttpUser, constant, events, task

from loadtests.recorded.calls import Call, Ready, load, select

ALL = "escher-ledger"
"""The profile that sends all nodes; `escher` sends a sample."""

REFERENCE = os.environ.get("REFERENCE", "").rstrip("/")
DRAWS = 32
"""So many lists of names are there for each call: no two calls in a row of a real scheduler bring the same."""
_OF_REFERENCE = ", reference"

_times: dict[str, array[float]] = defaultdict(lambda: array("d"))
_calls = load()
_number = itertools.count(1)


@functools.cache
def ready(call: Call, draw: int) -> Ready:
    """With other nodes in another order for each `draw`. Shared by all users: whole nodes are large."""
    return call.prepare(random.Random(draw))


def named(call: Call) -> str:
    if call.sent is None:
        return call.verb
    of = "" if call.sent.count == call.cluster else f"of {call.cluster} "
    return f"{call.verb}, {call.kind}, {call.sent.count} {of}{'whole nodes' if call.whole else 'names'}"


class Asking(FastHttpUser):  # type: ignore[misc]  # Locust lives in an environment of its own, unknown to mypy here.
    """One kube-scheduler with a pod at a time."""

    abstract = True
    wait_time = constant(0)

    def ask(self, **wanted: str | int | bool) -> None:
        """One of the recorded calls that have these values has been sent and answered as it should."""
        call = random.choice(select(_calls, **wanted))
        number = next(_number)
        body = ready(call, random.randrange(1 if call.whole else DRAWS)).body(
            f"load-{number}", str(uuid.uuid4()), f"load-{number}"
        )
        hosts = [("", ""), (REFERENCE, _OF_REFERENCE)] if REFERENCE else [("", "")]
        for host, suffix in random.sample(hosts, len(hosts)):
            self._post(call, body, host, suffix)

    def _post(self, call: Call, body: bytes, host: str, suffix: str) -> None:
        with self.client.post(
            f"{host}/scheduler/{call.verb}",
            data=body,
            headers={"Content-Type": "application/json"},
            name=named(call) + suffix,
            catch_response=True,
        ) as response:
            answer = response.json() if response.status_code == 200 else {}
            said = answer.get("Error", "") if isinstance(answer, dict) else ""
            if response.status_code != 200:
                response.failure(f"{response.status_code}")
            elif said and call.verb == "bind":
                response.request_meta["name"] = f"bind, answered with an error{suffix}"
            elif said:
                response.failure(said)


@events.request.add_listener  # type: ignore[untyped-decorator]
def note(name: str, response_time: float, exception: Exception | None, **_: Any) -> None:
    """Locust's own percentiles are whole milliseconds, and most of these calls take less than one."""
    if REFERENCE and exception is None:
        _times[name].append(response_time)


@events.quitting.add_listener  # type: ignore[untyped-decorator]
def tell_ratios(**_: Any) -> None:
    """Of every call that both were asked: the medians, and the one divided by the other."""
    for name, ours in sorted(_times.items()):
        if theirs := _times.get(name + _OF_REFERENCE):
            mine, its = statistics.median(ours), statistics.median(theirs)
            sys.stdout.write(f"{name:<50}{mine:9.2f} ms, reference {its:9.2f} ms, ratio {mine / its:6.2f}\n")


def sizes(**wanted: str | int | bool) -> dict[Callable[[Asking], None], int]:
    """Tasks: small calls more often than large ones."""

    def asks(cluster: int) -> Callable[[Asking], None]:
        return lambda user: user.ask(cluster=cluster, **wanted)

    return {asks(100): 3, asks(500): 2, asks(5000): 1}


class Scheduler(Asking):
    tasks = sizes(verb="filter", kind="ordinary", whole=False, profile=ALL)


class Sampling(Asking):
    tasks = sizes(verb="filter", kind="ordinary", whole=False, profile="escher")


class Ephemeral(Asking):
    tasks = sizes(verb="filter", kind="ephemeral", whole=False, profile=ALL)


class Gangs(Asking):
    tasks = sizes(verb="filter", kind="gang", whole=False, profile=ALL)


class WholeNodes(Asking):
    tasks = sizes(verb="filter", kind="ordinary", whole=True, profile=ALL)


class Scorer(Asking):
    tasks = sizes(verb="prioritize", kind="ordinary", whole=False, profile=ALL)


class Preemptor(Asking):
    tasks = sizes(verb="preempt", whole=False)


class Binder(Asking):
    @task
    def bind(self) -> None:
        self.ask(verb="bind", kind="ordinary", whole=False, cluster=100)
