"""What the faults are made of, without a cluster: what is drawn is the seed's, and the proxy does what was drawn."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from extender.kube.client.connection import Connection
from extender.kube.client.credentials import Credentials, from_kubeconfig
from extender.kube.errors import Unavailable
from lab.controlplane.api import Access
from lab.controlplane.processes import credentials
from loadtests.faults.__main__ import arguments, main, table
from loadtests.faults.draw import KINDS, NONE, REQUEST_KINDS, USUAL, BadRates, Fault, Faults, checked, cut, rates_of_run
from loadtests.faults.proxy import Proxy
from loadtests.faults.run import Result
from loadtests.faults.work import work_of

BINDING = "/api/v1/namespaces/default/pods/a/binding"
PODS = "/api/v1/pods"


# -- what is drawn


def drawn(seed: int, order: list[tuple[str, str]]) -> dict[tuple[str, str, int], Fault]:
    faults, asked = Faults(seed, USUAL), Counter[tuple[str, str]]()
    found = {}
    for what in order:
        asked[what] += 1
        found[(*what, asked[what])] = faults.of_request(*what)
    return found


def test_the_same_seed_does_the_same_to_the_same_attempt_in_whatever_order_requests_come() -> None:
    asked = [("POST", f"/api/v1/namespaces/default/pods/p{number}/binding") for number in range(40)] * 3
    assert drawn(1, asked) == drawn(1, sorted(asked)) != drawn(2, asked)


def test_each_kind_is_as_frequent_as_its_rate() -> None:
    faults = Faults(1, checked({}))
    count = 20_000
    for number in range(count):
        faults.of_request("PATCH", f"/{number}")
    for kind in REQUEST_KINDS:
        assert faults.drawn[kind] == pytest.approx(USUAL[kind] * count, rel=0.15)


def test_what_is_hindered_three_times_passes_the_fourth_time() -> None:
    rates = dict.fromkeys(KINDS, 0.0) | {"lose-request": 1.0}
    faults = Faults(1, rates)
    kinds = [faults.of_request("POST", BINDING).kind for _ in range(8)]
    assert kinds == [*["lose-request"] * 3, "none"] * 2


def test_only_writes_are_repeated_and_late() -> None:
    always = dict.fromkeys(KINDS, 0.0) | {"twice": 0.5, "late": 0.5}
    assert Faults(1, always).of_request("GET", PODS) == NONE
    assert Faults(1, always).of_request("POST", BINDING) != NONE


@pytest.mark.parametrize(
    "changed",
    [{"lose": 0.1}, {"twice": -0.1}, {"twice": 1.5}, {"lose-request": 0.5, "lose-answer": 0.5}, {"hold-event": 0.6}],
)
def test_rates_that_let_nothing_through_or_make_no_sense_are_refused(changed: dict[str, float]) -> None:
    with pytest.raises(BadRates):
        checked(changed)


def test_runs_differ_in_what_happens_and_never_go_beyond_the_most() -> None:
    of_runs = [rates_of_run(seed, checked({"twice": 0.35})) for seed in range(200)]
    assert all(sum(rates[kind] for kind in REQUEST_KINDS) <= 0.8 + 1e-9 for rates in of_runs)
    for kind in KINDS:
        assert 30 < sum(rates[kind] == 0 for rates in of_runs) < 110


@pytest.mark.parametrize("share", [0.0, 0.3, 0.999, 1.0])
def test_a_body_is_cut_before_its_end(share: float) -> None:
    for length in range(12):
        body = bytes(range(length))
        kept = cut(body, share)
        assert body.startswith(kept)
        assert len(kept) < max(length, 1)


def test_the_same_seed_draws_the_same_work_with_gangs_of_2_to_8() -> None:
    assert work_of(5, nodes=16) == work_of(5, nodes=16) != work_of(6, nodes=16)
    works = [work_of(seed, nodes=16) for seed in range(60)]
    gangs = [each.unit for work in works for each in work.placings if each.unit.is_gang]
    assert {len(unit.pods) for unit in gangs} == {2, 3, 4, 6, 8}
    settings = [each for work in works for each in work.settings]
    assert {bool(each.owner) for each in settings} == {each.ttl is None for each in settings} == {True, False}
    assert {len(each.units) for each in settings} == {1, 2, 3}


def test_a_pod_is_replaced_only_where_nothing_else_deletes_it() -> None:
    for seed in range(60):
        for each in work_of(seed, nodes=16).placings:
            assert not each.replaced or (each.unit.lasting and each.unit.cancelled_after is None)


def test_the_command_names_the_seed_that_found_something() -> None:
    clean, lost = Result(31), Result(32)
    lost.find("pods lost", ["a is gone"])
    assert "seed 32: pods lost" in table([clean, lost])
    assert "seed 31" not in table([clean, lost])
    assert arguments(["--rate", "twice=0.3"]).rates["twice"] == 0.3
    with pytest.raises(SystemExit):
        arguments(["--rate", "twice=often"])


def test_what_was_done_before_an_interruption_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def runs(*_: object, **__: object) -> Iterator[Result]:
        yield Result(31)
        raise KeyboardInterrupt

    monkeypatch.setattr("loadtests.faults.__main__.runs", runs)
    assert main(["--runs", "3", "--seed", "31"]) == 130
    told = capsys.readouterr()
    assert "interrupted after 1 of 3 runs" in told.err
    assert re.search(r"^runs +1$", told.out, re.MULTILINE)


# -- what the proxy does


class Upstream:
    """Stands for kube-apiserver: counts what reaches it, answers with a number, and tells `events` on a watch."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, bytes]] = []
        self.events: list[dict[str, Any]] = []

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if "watch" in request.query:
            response = web.StreamResponse()
            await response.prepare(request)
            for event in self.events:
                await response.write(json.dumps(event).encode() + b"\n")
            await response.write_eof()
            return response
        self.seen.append((request.method, await request.read()))
        return web.json_response({"count": len(self.seen)})


class Scripted(Faults):
    """These faults, in this order, and then none."""

    def __init__(self, *faults: Fault) -> None:
        super().__init__(0, USUAL)
        self._script = list(faults)

    def of_request(self, method: str, path: str, *, watch: bool = False) -> Fault:
        return NONE if watch or not self._script else self._script.pop(0)

    def of_event(self, path: str, type_: str, name: str) -> Fault:
        return self._script.pop(0) if self._script else NONE


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[tuple[Upstream, Proxy, Connection]]:
    made, upstream = credentials.make(tmp_path / "pki"), Upstream()
    runner = web.ServerRunner(web.Server(upstream.answer), shutdown_timeout=0.05)
    await runner.setup()
    trust = Proxy.identity(made.server_certificate, made.server_key)
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=trust).start()
    address = f"https://127.0.0.1:{runner.addresses[0][1]}"
    credentials.write_kubeconfig(tmp_path / "direct", context="direct", server=address, credentials=made)
    proxy = Proxy(Access(tmp_path / "direct"), certificate=made.server_certificate, key=made.server_key)
    await asyncio.to_thread(proxy.start)
    credentials.write_kubeconfig(tmp_path / "proxied", context="proxied", server=proxy.url, credentials=made)
    try:
        async with Connection(await Credentials.load(from_kubeconfig(tmp_path / "proxied"))) as connection:
            yield upstream, proxy, connection
    finally:
        await asyncio.to_thread(proxy.end)
        await runner.cleanup()


Parts = tuple[Upstream, Proxy, Connection]


async def hindered(proxy: Proxy, *faults: Fault) -> None:
    await asyncio.to_thread(proxy.hinder, Scripted(*faults))


@pytest.mark.anyio
async def test_without_faults_requests_and_answers_pass_as_they_are(parts: Parts) -> None:
    upstream, _, connection = parts
    assert json.loads(await connection.request("POST", BINDING, b"body")) == {"count": 1}
    assert upstream.seen == [("POST", b"body")]


@pytest.mark.anyio
@pytest.mark.parametrize(("kind", "reached"), [("lose-request", 0), ("lose-answer", 1), ("cut-answer", 1)])
@pytest.mark.parametrize("abrupt", [True, False])
async def test_what_is_lost_or_cut_is_a_failed_request(parts: Parts, kind: Any, reached: int, abrupt: bool) -> None:
    upstream, proxy, connection = parts
    await hindered(proxy, Fault(kind, share=0.5, abrupt=abrupt))
    with pytest.raises(Unavailable):
        await connection.request("POST", BINDING, b"body")
    assert len(upstream.seen) == reached
    assert json.loads(await connection.request("POST", BINDING, b"body")) == {"count": reached + 1}


@pytest.mark.anyio
async def test_of_a_request_that_is_sent_twice_the_second_answer_is_given(parts: Parts) -> None:
    upstream, proxy, connection = parts
    await hindered(proxy, Fault("twice"))
    assert json.loads(await connection.request("POST", BINDING, b"body")) == {"count": 2}
    assert upstream.seen == [("POST", b"body")] * 2


@pytest.mark.anyio
async def test_a_late_request_fails_and_is_done_before_calm_returns(parts: Parts) -> None:
    upstream, proxy, connection = parts
    await hindered(proxy, Fault("late", seconds=60))
    with pytest.raises(Unavailable):
        await connection.request("POST", BINDING, b"late")
    assert upstream.seen == []
    await asyncio.to_thread(proxy.calm)
    assert upstream.seen == [("POST", b"late")]


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["delay-request", "delay-answer"])
async def test_what_is_delayed_comes_when_it_is_calm(parts: Parts, kind: Any) -> None:
    _, proxy, connection = parts
    await hindered(proxy, Fault(kind, seconds=60))
    asked = asyncio.ensure_future(connection.request("POST", BINDING, b"body"))
    assert (await asyncio.wait([asked], timeout=0.05))[0] == set()
    await asyncio.to_thread(proxy.calm)
    assert json.loads(await asked) == {"count": 1}


@pytest.mark.anyio
@pytest.mark.parametrize(("kind", "wait"), [("429", 1.0), ("500", None), ("503", None), ("504", None)])
async def test_the_proxy_refuses_as_kube_apiserver_would(parts: Parts, kind: Any, wait: float | None) -> None:
    upstream, proxy, connection = parts
    await hindered(proxy, Fault(kind))
    with pytest.raises(Unavailable) as refused:
        await connection.request("POST", BINDING, b"body")
    assert (refused.value.retry_after, upstream.seen) == (wait, [])


async def told(connection: Connection) -> tuple[list[str], bool]:
    """The names that the watch told (the type, where there is none), and whether it ended well."""
    names: list[str] = []
    lines = connection.lines(f"{PODS}?watch=1", silence=10)
    async with contextlib.aclosing(lines):
        try:
            async for line in lines:
                event = json.loads(line)
                names.append(event["object"].get("metadata", {}).get("name") or event["type"])
        except Unavailable:
            return names, False
    return names, True


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("fault", "names", "ended_well"),
    [
        (NONE, ["a", "b", "c"], True),
        (Fault("repeat-event"), ["a", "b", "b", "c"], True),
        (Fault("end-watch"), ["a"], True),
        (Fault("cut-watch", share=0.5), ["a"], False),
        (Fault("cut-watch", share=0.5, abrupt=True), ["a"], False),
        (Fault("expire-watch"), ["a", "ERROR"], True),
    ],
    ids=lambda value: value.kind if isinstance(value, Fault) else None,
)
async def test_a_watch_is_hindered_at_its_second_event(
    parts: Parts, fault: Fault, names: list[str], ended_well: bool
) -> None:
    upstream, proxy, connection = parts
    upstream.events = [{"type": "ADDED", "object": {"metadata": {"name": name}}} for name in "abc"]
    await hindered(proxy, NONE, fault)
    assert await told(connection) == (names, ended_well)


@pytest.mark.anyio
async def test_an_event_that_is_held_back_holds_up_those_after_it(parts: Parts) -> None:
    upstream, proxy, connection = parts
    upstream.events = [{"type": "ADDED", "object": {"metadata": {"name": name}}} for name in "ab"]
    await hindered(proxy, Fault("hold-event", seconds=60))
    telling = asyncio.ensure_future(told(connection))
    assert (await asyncio.wait([telling], timeout=0.05))[0] == set()
    await asyncio.to_thread(proxy.calm)
    assert await telling == (["a", "b"], True)
