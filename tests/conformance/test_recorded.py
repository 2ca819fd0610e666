"""A session recorded with a real kube-apiserver, asked of the embedded one: the same answers, but for what is known.

Nothing real is needed, and no sockets: time is virtual.
"""

from __future__ import annotations

import asyncio
import random
import re
from typing import Any
from urllib.parse import parse_qsl, unquote

import pytest

from kubesim.apiserver.machinery.wire import Answer, Request
from kubesim.apiserver.serving.api import ApiServer
from kubesim.clock import Clock
from kubesim.virtual_time import VirtualTimeLoop
from tests.conformance.recorded.differences import DIFFERENCES, EVERYTHING
from tests.conformance.recorded.script.whole import SCRIPT
from tests.conformance.recorded.session import FILE, Exchange, Session, read

RECORDED = read()


async def _replay() -> list[Exchange]:
    server = ApiServer(Clock(), random.Random(7))

    def send(method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        where, _, query = path.partition("?")
        answer = server.handle(
            Request(method, unquote(where), dict(parse_qsl(query, keep_blank_values=True)), headers, body)
        )
        assert isinstance(answer, Answer), f"{method} {path} is a watch"
        return answer.status, answer.body

    session, found = Session(send), []
    for each in RECORDED:
        found.append(session.exchange(each.ask))
        await asyncio.sleep(each.ask.pause)
    return found


@pytest.fixture(scope="module")
def replayed() -> dict[str, Exchange]:
    """What the embedded API server answers to each ask."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return {each.ask.id: each for each in runner.run(_replay())}


def _without(answer: Any, places: tuple[str, ...]) -> Any:
    """The answer but for these places, each like `details.causes`."""
    if EVERYTHING in places:
        return None
    if not isinstance(answer, dict):
        return answer
    inner = [place.partition(".") for place in places]
    return {
        key: _without(value, tuple(rest for first, _, rest in inner if first == key and rest))
        for key, value in answer.items()
        if key not in places
    }


def _said(exchange: Exchange) -> tuple[int, Any]:
    return exchange.status, exchange.answer


@pytest.mark.parametrize(
    "real", [each for each in RECORDED if each.ask.id not in DIFFERENCES], ids=lambda each: each.ask.id
)
def test_the_embedded_api_server_answers_as_the_real_one_did(real: Exchange, replayed: dict[str, Exchange]) -> None:
    assert _said(replayed[real.ask.id]) == _said(real)


@pytest.mark.parametrize(
    "real", [each for each in RECORDED if each.ask.id in DIFFERENCES], ids=lambda each: each.ask.id
)
def test_a_known_difference_is_still_one(real: Exchange, replayed: dict[str, Exchange]) -> None:
    known, embedded = DIFFERENCES[real.ask.id], replayed[real.ask.id]
    assert _said(embedded) != _said(real), f"no difference any more, take it from the list: {known.why}"
    assert (embedded.status != real.status) is known.other_status, known.why
    assert _without(embedded.answer, known.apart_from) == _without(real.answer, known.apart_from)


def test_every_known_difference_is_about_a_recorded_ask_that_has_a_name() -> None:
    assert DIFFERENCES.keys() <= {each.ask.id for each in RECORDED if not re.search(r"/\d+$", each.ask.id)}


def test_the_recording_is_of_the_script_as_it_is_now() -> None:
    assert [each.ask for each in RECORDED] == SCRIPT, "record anew: python -m tests.conformance.recorded"


def test_the_recording_does_not_tell_where_and_when_it_was_made() -> None:
    answers = "\n".join(str(each.answer) for each in RECORDED)
    assert not re.findall(r"20\d\d-\d\d-\d\d|127\.0\.0\.\d+|localhost|Bearer|eyJ|/(?:home|root|tmp|work)/", answers)
    assert FILE.stat().st_size < 1_000_000
