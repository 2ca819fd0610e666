"""Hypothesis for all tests: the same examples on every run, and the blob that reproduces a failure in the report.
Fixtures of the embedded cluster, which are a plugin that is installed with it; and real time for async tests, unless
their folder or module says `virtual_time`.

The profile `few` is the default, and CI's. HYPOTHESIS_PROFILE=many tries four times as many examples;
HYPOTHESIS_PROFILE=explore draws new ones, thousands, and prints the seed to run them again with. The profile `mutants`
is for mutation testing: a failure is enough, none simpler is looked for. Where a test needs more examples than others
or fewer, it says so as a multiple of the profile's.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, Phase, settings

from extender.app.contracts.effects import Decided
from extender.app.cycle.requeue import Requeue
from extender.app.cycle.scheduler import Scheduler
from loadtests.shared.slow_twin import settle_and_compare

pytest_plugins = ["kubesim.pytest_plugin", "pytester"]

settings.register_profile(
    "many", derandomize=True, print_blob=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("few", settings.get_profile("many"), max_examples=25)
settings.register_profile("explore", settings.get_profile("many"), derandomize=False, max_examples=2000)
settings.register_profile(
    "mutants", settings.get_profile("many"), max_examples=20, phases=[Phase.explicit, Phase.generate], print_blob=False
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "few"))

# As by default, but for tracebacks: one with the values of all variables takes 50 ms to print, and some tests have
# hundreds of errors logged.
structlog.configure(
    processors=[
        *structlog.get_config()["processors"][:-1],
        structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
    ]
)


_SHARED = ("field", "cluster")
"""Fixtures of a session: a control plane, and what stands on it."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where `make e2e` runs tests in several processes, those that share a control plane are in one."""
    for item in items if config.pluginmanager.hasplugin("xdist") else ():
        if isinstance(item, pytest.Function) and item.get_closest_marker("e2e") is not None:
            shared = next((each for each in _SHARED if each in item.fixturenames), "")
            item.add_marker(pytest.mark.xdist_group(f"{item.path.parent.name} {shared}" if shared else str(item.path)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is made now, thousands of tests and all modules, stays to the end: no garbage is looked for in it, ever; and
    in what tests make, as seldom as the service looks while it takes in its first lists."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(50_000, 50, 50)
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def slow_twin() -> Iterator[None]:
    """What `Requeue.settle_if_changed` leaves out would have found nothing: the fault simulation runs without.

    After each decision the next deadline is asked for, as by the timer: until then each filter call makes a pass."""
    decided = Scheduler._decided

    @wraps(decided)
    def decided_and_timed(scheduler: Scheduler, answer: Any) -> Decided[Any]:
        made = decided(scheduler, answer)
        scheduler.next_deadline()
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Requeue, "settle_if_changed", settle_and_compare)
        patch.setattr(Scheduler, "_decided", decided_and_timed)
        yield


@pytest.fixture
def anyio_backend() -> object:
    return "asyncio"


@pytest.fixture(scope="session")
def state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Clusters of the tests are kept apart from those of the user. The binaries' cache is everybody's."""
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder))
        yield folder
