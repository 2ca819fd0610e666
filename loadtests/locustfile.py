"""Locust: sends the calls of kube-scheduler to a running service or any other extender.

`make loadtest` (loadtests/load) starts a cluster and a service, and checks the state that is left in the end. By hand,
from the checkout's folder, with only Locust installed (requirements/load.txt):

    locust -f loadtests/locustfile.py --headless --users 4 --run-time 20s --host http://127.0.0.1:8080 Scheduler

The names at the end are the users. The users of this first list send calls recorded from a real kube-scheduler
(loadtests/recorded). Each call has new pod names and UIDs, and these pods exist nowhere:

    Scheduler       filter for ordinary pods, with 100, 500 and 5000 node names
    Sampling        the same with the names that kube-scheduler's default sampling sends
    Ephemeral       filter for pods that ask for one unit of escher.dev/default.data1
    Gangs           filter for members of gangs of four; no member gets past filter
    WholeNodes      filter for ordinary pods, with 100, 500 and 5000 whole nodes (2 KB each)
    Scorer          prioritize, with names
    Preemptor       preempt, with names and the victims' UIDs
    Binder          bind; calls answered with an error are counted under a name of their own

These users need a cluster that `make loadtest` has started. They create pods, place them with filter, prioritize and
bind, and delete them. They also write policies and resources:

    OrdinaryPods    pods that ask for nothing special; the policies of Policies match some of them
    EphemeralPods   pods that ask for one unit of escher.dev/default.data1
    GangPods        gangs of four
    Policies        create, read, change, replace and delete an EscherPolicy
    Resources       set_resource on a node, with other units, on several nodes, with an expiry; delete
    WhatIf          what-if for a gang, for a drained node, and for both
    Explainer       explain for a pod and a gang that wait

With the environment variable REFERENCE each call also goes to that URL, in random order. The medians and their ratio
are printed in the end; a failed call counts as infinitely late. `python -m loadtests.reference --bind-without-writing`
is a plain extender in Go. Both times include Locust's own, which moves the ratio of short calls nearer to 1. A real
kube-scheduler sends one filter call after the other: one user. More users show where the one process is saturated.

LOAD_SHAPE is ramp, spike or soak (loadtests/load/shapes.py), for --users and --run-time. LOAD_RATE is the most verbs a
second of all users together, whatever their number (loadtests/load/pace.py). LOAD_FOLDER receives times by name, with
finer resolution than Locust's (loadtests/load/results/timings.py).
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
from loadtests.load.results.timings import REFERENCE as OF_REFERENCE
from loadtests.load.results.timings import Files, Spread, Timings, ratio
from loadtests.load.shapes import tick
from loadtests.load.users import EphemeralPods, Explainer, GangPods, OrdinaryPods, Policies, Resources, WhatIf
from loadtests.recorded.calls import Call, Ready, load, select

__all__ = ["EphemeralPods", "Explainer", "GangPods", "OrdinaryPods", "Policies", "Resources", "WhatIf"]

ALL = "escher-ledger"
"""The profile that sends all nodes; the profile `escher` sends a sample."""

REFERENCE = os.environ.get("REFERENCE", "").rstrip("/")
DRAWS = 32
"""Lists of names for each call: a real kube-scheduler never sends the same list twice in a row."""
SHAPE = os.environ.get("LOAD_SHAPE", "")
FOLDER = os.environ.get("LOAD_FOLDER", "")
_WINDOWS, _LEAST_WINDOW = 300, 1.0
"""Most windows of a run, and the least seconds of a window."""

_timings = Timings()
_calls = load()
_number = itertools.count(1)


@functools.cache
def ready(call: Call, draw: int) -> Ready:
    """Prepares the call: each `draw` has other nodes in another order. Users share it."""
    return call.prepare(random.Random(draw))


def named(call: Call) -> str:
    if call.sent is None:
        return call.verb
    of = "" if call.sent.count == call.cluster else f"of {call.cluster} "
    return f"{call.verb}, {call.kind}, {call.sent.count} {of}{'whole nodes' if call.whole else 'names'}"


class Asking(FastHttpUser):  # type: ignore[misc]  # Locust lives in an environment of its own, unknown to mypy here.
    """One kube-scheduler that sends calls for one pod at a time."""

    abstract = True
    wait_time = constant(0)

    def ask(self, **wanted: str | int | bool) -> None:
        """Sends a random recorded call that has these values, and checks its answer."""
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
    """Writes LOAD_FOLDER's files from the start of the load to its end.

    A load that is started again on Locust's page counts from its own start.
    """

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
    """Prints medians, numbers of calls and the ratio of all calls sent to both extenders."""

    def number(value: float | None) -> str:
        return "–" if value is None else "∞" if value == math.inf else f"{value:.2f}"

    def said(of: Spread) -> str:
        return f"{number(of.quantile(0.5)):>9} ms ({of.count} calls, {of.failures} failed)"

    for name, mine, its in _timings.both():
        divided = number(ratio(mine.quantile(0.5), its.quantile(0.5)))
        sys.stdout.write(f"{name:<50}{said(mine)}, reference {said(its)}, ratio {divided:>6}\n")


if SHAPE:

    class Shape(LoadTestShape):  # type: ignore[misc]
        """The shape in LOAD_SHAPE. Locust uses this class if it exists."""

        use_common_options = True

        def tick(self) -> tuple[int, float] | None:
            wanted = self.runner.environment.parsed_options
            return tick(SHAPE, self.get_run_time(), wanted.num_users, wanted.run_time)


def sizes(**wanted: str | int | bool) -> dict[Callable[[Asking], None], int]:
    """Returns tasks: small calls are more frequent than large ones."""

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
