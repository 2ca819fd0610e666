"""What there is to read, and how long the paths are, only falls."""

from __future__ import annotations

import json
from collections.abc import Iterator
from inspect import unwrap

import pytest

from extender.app.cycle.requeue import Requeue
from extender.app.cycle.scheduler import Scheduler
from loadtests.shared.slow_twin import SETTLE_IF_CHANGED
from tests.frozen import ratchets
from tests.frozen.ratchets import RECORDED, measured

BASELINE: dict[str, int] = json.loads(RECORDED.read_text())


@pytest.fixture(scope="module", autouse=True)
def no_twin(slow_twin: None) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Requeue, "settle_if_changed", SETTLE_IF_CHANGED)
        patch.setattr(Scheduler, "_decided", unwrap(Scheduler._decided))
        yield


@pytest.fixture(scope="module")
def now(no_twin: None) -> dict[str, int]:
    return measured()


def test_nothing_is_above_its_baseline(now: dict[str, int]) -> None:
    above = {name: (number, BASELINE.get(name, 0)) for name, number in now.items() if number > BASELINE.get(name, 0)}
    assert not above, "(now, baseline). What an issue allows is written into tests/frozen/ratchets.json by hand"


def test_the_baseline_is_lowered_with_what_is_won(now: dict[str, int]) -> None:
    below = {name: (now.get(name, 0), most) for name, most in BASELINE.items() if now.get(name, 0) < 0.99 * most - 1}
    assert not below, "(now, baseline). Lower it: python -m tests.frozen.ratchets --write"


@pytest.mark.parametrize(
    ("text", "own", "long"),
    [
        ("Whoever waits is told of it, and nobody heeds that.", 4, 0),
        ("The planner counts members. " + "word " * 26, 0, 1),
        ("| " + "word " * 20 + "| " + "word " * 20 + "|", 0, 0),
    ],
)
def test_words_of_our_own_and_long_sentences_are_counted(text: str, own: int, long: int) -> None:
    assert len(ratchets._OWN_WORDS.findall(text)) == own
    assert ratchets._long_sentences(text) == long


def test_paths_do_not_depend_on_what_was_measured_before() -> None:
    assert dict(ratchets._of_paths()) == dict(ratchets._of_paths())
