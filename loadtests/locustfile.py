"""Locust's load on a running service or any other extender, as kube-scheduler words it.

`make loadtest` (loadtests/load) starts a cluster and a service for it, and looks at what is left in the end. By hand,
from the checkout's folder, with Locust alone installed (requirements/load.txt):

    locust -f loadtests/locustfile.py --headless --users 4 --run-time 20s --host http://127.0.0.1:8080 Scheduler

The names at the end say who asks. What these send was recorded from a real kube-scheduler (loadtests/recorded); names
and UIDs of pods are new in each call, and the pods exist nowhere:

    Scheduler       filter for ordinary pods, with 100, 500 and 5000 node names
    Sampling        the same as the default sampling makes it: some of those names
    Ephemeral       filter for pods that ask for one unit of escher.dev/default.data1
    Gangs           filter for members of gangs of four, none of which ever comes further
    WholeNodes      filter for ordinary pods, with 100, 500 and 5000 whole nodes (2 KB each)
    Scorer          prioritize, with names
    Preemptor       preempt, with names and the victims' UIDs
    Binder          bind; told apart from those that were written are those that were answered with an error

These need a cluster that `make loadtest` has started. Pods are created, placed by filter, prioritize and bind, and
deleted; policies and resources too:

    OrdinaryPods    pods that ask for nothing special; policies of Policies govern some of them
    EphemeralPods   pods that ask for one unit of escher.dev/default.data1
    GangPods        gangs of four
    Policies        create, read, change, replace and delete an EscherPolicy
    Resources       set_resource on a node, with other units, on several nodes, with an end; delete
    WhatIf          what-if for a gang, for a drained node, and for both
    Explainer       explain for a pod and a gang that wait

With the environment variable REFERENCE each call goes to that URL as well, to the one or to the other first, and in the
end the medians and their ratio are told, where a call that failed is infinitely late;
`python -m loadtests.reference --bind-without-writing` is a plain extender in Go. Locust's own time is in both, so that
the ratio of short calls is nearer to 1 than it would be without.

A real kube-scheduler sends one filter call after the other, so one user is what a cluster sees; more show where the
service's one process is full.

LOAD_SHAPE is ramp, spike or soak (loadtests/load/shapes.py), for --users and --run-time. LOAD_RATE is how many verbs a
second all users together may call, for as many as they are (loadtests/load/pace.py). In LOAD_FOLDER, times by name are
kept, finer than Locust has them (loadtests/load/timings.py).
"""

from __future__ import annotations

import functools
import itertools
import math
import os
import random
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from locust import FastHttpUser, LoadTestShape, constant, events, task

from loadtests.load import users
from loadtests.load.shapes import tick
from loadtests.load.timings import REFERENCE as OF_REFERENCE
from loadtests.load.timings import Files, Spread, Timings, ratio
from loadtests.load.users import EphemeralPods, Explainer, GangPods, OrdinaryPods, Policies, Resources, WhatIf
from loadtests.recorded.calls import Call, Ready, load, select

__all__ = ["EphemeralPods", "Explainer", "GangPods", "OrdinaryPods", "Policies", "Resources", "WhatIf"]

ALL = "escher-ledger"
"""The profile that sends all nodes; `escher` sends a sample."""

REFERENCE = os.environ.get("REFERENCE", "").rstrip("/")
DRAWS = 32
"""So many lists of names are there for each call: no two calls in a row of a real scheduler bring the same."""
SHAPE = os.environ.get("LOAD_SHAPE", "")
FOLDER = os.environ.get("LOAD_FOLDER", "")
_WINDOWS, _LEAST_WINDOW = 300, 1.0
"""So many at most, of so many seconds at least."""

_timings = Timings()
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
        users.PACE.turn()
        hosts = [("", ""), (REFERENCE, OF_REFERENCE)] if REFERENCE else [("", "")]
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


@events.init.add_listener  # type: ignore[untyped-decorator]
def refuse_those_without_a_cluster(environment: Any, **_: Any) -> None:
    needing = [each.__name__ for each in environment.user_classes if issubclass(each, users.Clustered)]
    if needing and not users.CLUSTER:
        sys.exit(f"{', '.join(needing)}: there is no cluster in LOAD_CLUSTER; `make loadtest` starts one")


@events.request.add_listener  # type: ignore[untyped-decorator]
def note(request_type: str, name: str, response_time: float, exception: Exception | None, **_: Any) -> None:
    _timings.note(request_type, name, response_time, failed=exception is not None)


class Writing:
    """LOAD_FOLDER's files, from the beginning of the load to its end; a load that is begun anew on the page is told
    from its own beginning."""

    def __init__(self, runner: Any, window: float) -> None:
        self._files = Files(Path(FOLDER), _timings)
        self._runner, self._window, self._began = runner, window, time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        while not self._ended.wait(self._window):
            self._files.window(time.monotonic() - self._began, self._runner.user_count)

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        self._files.end(time.monotonic() - self._began)


_writing: list[Writing] = []


@events.test_start.add_listener  # type: ignore[untyped-decorator]
def begin_to_write(environment: Any, **_: Any) -> None:
    if FOLDER:
        seconds = environment.parsed_options.run_time or 0
        _timings.clear()
        _writing.append(Writing(environment.runner, max(_LEAST_WINDOW, seconds / _WINDOWS)))


@events.test_stop.add_listener  # type: ignore[untyped-decorator]
def end_writing(**_: Any) -> None:
    if _writing:
        _writing.pop().end()


@events.quitting.add_listener  # type: ignore[untyped-decorator]
def tell_ratios(**_: Any) -> None:
    """Of every call that both were asked: the medians, of how many calls, and the one divided by the other."""

    def number(value: float | None) -> str:
        return "–" if value is None else "∞" if value == math.inf else f"{value:.2f}"

    def said(of: Spread) -> str:
        return f"{number(of.quantile(0.5)):>9} ms ({of.count} calls, {of.failures} failed)"

    for name, mine, its in _timings.both():
        divided = number(ratio(mine.quantile(0.5), its.quantile(0.5)))
        sys.stdout.write(f"{name:<50}{said(mine)}, reference {said(its)}, ratio {divided:>6}\n")


if SHAPE:

    class Shape(LoadTestShape):  # type: ignore[misc]
        """The one in LOAD_SHAPE: Locust takes it where there is one, and none otherwise."""

        use_common_options = True

        def tick(self) -> tuple[int, float] | None:
            wanted = self.runner.environment.parsed_options
            return tick(SHAPE, self.get_run_time(), wanted.num_users, wanted.run_time)


def sizes(**wanted: str | int | bool) -> dict[Callable[[Asking], None], int]:
    """Tasks: small calls more often than large ones."""

    def asks(cluster: int) -> Callable[[Asking], None]:
        return lambda user: user.ask(cluster=cluster, **wanted)

    return {asks(100): 3, asks(500): 2, asks(5000): 1}


class Scheduler(Asking):
    weight = 4
    tasks = sizes(verb="filter", kind="ordinary", whole=False, profile=ALL)


class Sampling(Asking):
    weight = 2
    tasks = sizes(verb="filter", kind="ordinary", whole=False, profile="escher")


class Ephemeral(Asking):
    tasks = sizes(verb="filter", kind="ephemeral", whole=False, profile=ALL)


class Gangs(Asking):
    tasks = sizes(verb="filter", kind="gang", whole=False, profile=ALL)


class WholeNodes(Asking):
    tasks = sizes(verb="filter", kind="ordinary", whole=True, profile=ALL)


class Scorer(Asking):
    weight = 2
    tasks = sizes(verb="prioritize", kind="ordinary", whole=False, profile=ALL)


class Preemptor(Asking):
    tasks = sizes(verb="preempt", whole=False)


class Binder(Asking):
    @task
    def bind(self) -> None:
        self.ask(verb="bind", kind="ordinary", whole=False, cluster=100)
