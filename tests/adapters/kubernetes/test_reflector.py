"""The reflector's sink says what the API server says, whatever happens to lists and watches. Virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator

import pytest
from structlog.testing import capture_logs

from extender.adapters.kubernetes.codecs import kinds
from extender.adapters.kubernetes.codecs.resources import EphemeralResources
from extender.adapters.kubernetes.reflectors.reflector import Reflector
from extender.app.cycle.event_handlers import Facts
from extender.app.cycle.scheduler import Scheduler
from extender.app.observability.flight_recorder import FlightRecorder
from extender.core.cluster import Node, Pod
from extender.kube.errors import Away, Expired, Refused, Silent, Unavailable
from tests.adapters.kubernetes.manifests import bookmark, event, node, page, pod, status
from tests.adapters.kubernetes.scripted_api import RecordingSink, ScriptedApi
from tests.app.fakes import LoopClock
from tests.performing import Performing

pytestmark = pytest.mark.anyio


class Following:
    """A reflector of pods on a scripted API server; `play` runs it until the script is at its end."""

    def __init__(self) -> None:
        self.api = ScriptedApi()
        self.sink: RecordingSink[Pod] = RecordingSink()
        self.lists: list[tuple[str, str]] = []
        self.asked: list[tuple[int, int, list[str]]] = []
        """For each list: how many requests had been made before it was asked for, and when it was there, and what the
        sink had been told then."""
        self.reflector = self.follow(self.sink)

    def follow(self, sink: RecordingSink[Pod]) -> Reflector[Pod]:
        return Reflector(
            self.api,
            kinds.pods(5.0),
            sink,
            on_relist=lambda kind, reason: self.lists.append((kind, reason)),
            before_list=self._before_list,
            sleep=self.api.sleep,
            clock=self.api.clock,
            chance=lambda: 0.5,
            page_size=2,
            watch_seconds=100,
        )

    def _before_list(self) -> Callable[[], None]:
        before = len(self.api.requested)
        return lambda: self.asked.append((before, len(self.api.requested), list(self.sink.log)))

    async def play(self) -> None:
        async with running(self.reflector):
            await self.api.exhausted.wait()

    def watched_from(self) -> list[str]:
        return [re.findall(r"resourceVersion=(\w*)", each)[0] for each in self.api.requested if "WATCH" in each]

    def reasons(self) -> list[str]:
        return [reason for _, reason in self.lists]


@contextlib.asynccontextmanager
async def running(reflector: Reflector[Pod]) -> AsyncIterator[None]:
    task = asyncio.create_task(reflector.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.fixture
async def following() -> Following:
    return Following()


async def test_lists_page_by_page_and_watches_from_there(following: Following) -> None:
    api = following.api
    api.answers += [page([pod("a"), pod("b")], 10, "next?/&"), page([pod("c")], 10)]
    api.watches.append(
        [event("ADDED", pod("d", 11)), event("MODIFIED", pod("a", 12)), event("DELETED", pod("b", 13)), 9.0]
    )
    await following.play()
    assert api.requested[:3] == [
        "GET /api/v1/pods?limit=2",
        "GET /api/v1/pods?limit=2&continue=next%3F%2F%26",
        "WATCH /api/v1/pods?watch=1&allowWatchBookmarks=true&resourceVersion=10&timeoutSeconds=150",
    ]
    assert api.silences[0] == 90.0
    assert following.sink.log == ["replace a,b,c", "upsert d", "upsert a", "remove b"]
    assert following.watched_from() == ["10", "13"]
    assert following.reflector.synced.is_set()
    assert following.lists == [("pods", "started")]
    assert api.slept == []


async def test_has_not_synced_before_the_last_page(following: Following) -> None:
    following.api.answers.append(page([pod("a")], 10, "next"))
    await following.play()
    assert not following.reflector.synced.is_set()
    assert following.sink.log == []


async def test_goes_on_from_the_last_bookmark(following: Following) -> None:
    following.api.answers.append(page([], 10))
    following.api.watches.append([event("ADDED", pod("a", 11)), bookmark(500)])
    await following.play()
    assert following.watched_from() == ["10", "500"]
    assert following.sink.log == ["replace ", "upsert a"]


async def test_takes_repeated_and_old_events_for_what_they_are(following: Following) -> None:
    following.api.answers.append(page([pod("a", 9)], 10))
    following.api.watches.append(
        [event("ADDED", pod("a", 9)), event("DELETED", pod("z", 8)), event("ADDED", pod("a", 12))]
    )
    await following.play()
    assert list(following.sink.items) == ["a"]


async def test_starts_its_list_again_when_it_expires_between_pages(following: Following) -> None:
    following.api.answers += [page([pod("a")], 10, "next"), Expired(410, "too old"), page([pod("b")], 20)]
    await following.play()
    assert following.sink.log == ["replace b"]
    assert following.reasons() == ["started", "expired"]
    assert following.watched_from() == ["20"]


@pytest.mark.parametrize(
    "how", [Expired(410, "too old"), event("ERROR", status(410, "too old resource version: 10 (99)", reason="Expired"))]
)
async def test_lists_again_at_once_when_its_version_has_expired(following: Following, how: bytes | Exception) -> None:
    following.api.answers += [page([pod("a")], 10), page([pod("b")], 100)]
    following.api.watches.append([how])
    await following.play()
    assert following.sink.log == ["replace a", "replace b"]
    assert following.reasons() == ["started", "expired"]
    assert following.api.slept == []


async def test_slows_down_when_one_list_after_another_expires(following: Following) -> None:
    following.api.answers += [page([], 10), page([], 20), page([], 30)]
    following.api.watches += [[Expired(410, "old")], [Expired(410, "old")]]
    await following.play()
    assert following.api.slept == pytest.approx([0.4 * 0.75])


async def test_takes_up_a_broken_watch_where_it_was_after_a_pause(following: Following) -> None:
    following.api.answers.append(page([], 10))
    following.api.watches += [[event("ADDED", pod("a", 11)), Unavailable("connection reset")]]
    await following.play()
    assert following.watched_from() == ["10", "11"]
    assert following.api.slept == [0.2 * 0.75]
    assert following.reasons() == ["started"]


async def test_a_watch_is_silent_when_no_bookmark_has_come(following: Following) -> None:
    """kube-apiserver sends one every minute. Together with the look at the version that is less than two minutes."""
    following.api.answers.append(page([], 10))
    await following.play()
    assert 60 < following.api.silences[0] <= 110


async def test_a_short_watch_is_silent_after_its_own_time() -> None:
    api = ScriptedApi()
    api.answers.append(page([], 10))
    reflector = Reflector(
        api, kinds.pods(5.0), RecordingSink(), chance=lambda: 0.5, watch_seconds=30, grace_seconds=5.0
    )
    async with running(reflector):
        await api.exhausted.wait()
    assert api.silences == [50.0]


async def test_takes_up_a_silent_watch_at_once_where_the_api_server_is_as_far(following: Following) -> None:
    following.api.answers += [page([], 10), page([pod("a")], 10, "more")]
    following.api.watches.append([90.0, Silent("nothing for 90 s")])
    await following.play()
    assert following.api.requested[2] == "GET /api/v1/pods?limit=1"
    assert following.sink.log == ["replace "]
    assert following.watched_from() == ["10", "10"]
    assert following.api.slept == []


async def test_lists_all_soon_after_a_watch_fell_silent(following: Following) -> None:
    """An etcd may have been restored: it has other contents at the same version."""
    following.api.answers += [page([pod("a")], 10), page([pod("b")], 10, "more"), page([pod("b")], 10)]
    following.api.watches += [[90.0, Silent("nothing for 90 s")], [1.0]]
    await following.play()
    assert following.reasons() == ["started", "broken"]
    assert following.sink.log == ["replace a", "replace b"]


async def test_lists_again_when_a_watch_fell_silent_for_the_api_server_has_gone_back(following: Following) -> None:
    """It waits for a version that lies in the future, and would for days."""
    following.api.answers += [page([pod("a")], 99), page([], 50), page([pod("b")], 50)]
    following.api.watches.append([90.0, Silent("nothing for 90 s")])
    await following.play()
    assert following.sink.log == ["replace a", "replace b"]
    assert following.asked[1] == (3, 4, ["replace a"]), "told before the list is asked for, and before the sink has it"
    assert following.reasons() == ["started", "rewound"]
    assert following.watched_from() == ["99", "50"]


@pytest.mark.parametrize("told", [bookmark(51), event("ADDED", pod("c", 51))])
async def test_lists_again_when_a_watch_tells_of_what_was_before(following: Following, told: bytes) -> None:
    """It is no news, and where it stands alone it would hide all that the list says."""
    following.api.answers += [page([pod("a")], 99), page([pod("b")], 50)]
    following.api.watches.append([told])
    await following.play()
    assert following.sink.log == ["replace a", "replace b"]
    assert following.reasons() == ["started", "rewound"]
    assert following.watched_from() == ["99", "50"]
    assert following.api.slept == []


async def test_looks_again_how_far_the_api_server_is_until_it_says(following: Following) -> None:
    following.api.answers += [page([], 99), Unavailable("down"), b"<html>", page([], 50), page([pod("b")], 50)]
    following.api.watches.append([90.0, Silent("nothing for 90 s")])
    await following.play()
    assert following.reasons() == ["started", "rewound"]
    assert len(following.api.slept) == 2


def still(version: int) -> list[bytes | float | Exception]:
    """A watch that is alive and has no news: three minutes of bookmarks, none of which tells of progress."""
    return [60.0, bookmark(version), 60.0, bookmark(version), 60.0, bookmark(version)]


async def test_takes_up_a_watch_whose_bookmarks_stand_still_and_lists_where_that_does_not_help(
    following: Following,
) -> None:
    api = following.api
    api.answers += [page([pod("a")], 10), page([pod("a")], 40, "more"), page([pod("a")], 70, "more"), page([], 71)]
    api.watches += [still(10), still(10)]
    await following.play()
    assert following.watched_from() == ["10", "10", "71"]
    assert following.reasons() == ["started", "stuck"]
    assert following.sink.log == ["replace a", "replace "]


async def test_a_watch_that_stands_still_while_the_api_server_goes_on_makes_what_is_known_older(
    following: Following,
) -> None:
    following.api.answers += [page([pod("a")], 10), page([pod("a")], 40, "more")]
    following.api.watches.append(still(10))
    await following.play()
    assert following.reflector.age == 60


async def test_a_watch_that_gets_as_far_when_it_is_taken_up_again_is_not_stuck(following: Following) -> None:
    api = following.api
    api.answers += [page([pod("a")], 10), page([pod("a")], 40, "more"), page([pod("a")], 70, "more")]
    api.watches += [still(10), [event("ADDED", pod("b", 40)), *still(40)]]
    await following.play()
    assert following.watched_from() == ["10", "10", "40"]
    assert following.reasons() == ["started"]


async def test_bookmarks_that_stand_still_where_nothing_happens_lead_to_no_list(following: Following) -> None:
    api = following.api
    api.answers += [page([pod("a")], 10), *[page([pod("a")], 10, "more")] * 3]
    api.watches += [still(10)] * 3
    await following.play()
    assert following.watched_from() == ["10"] * 4
    assert following.reasons() == ["started"]
    assert following.reflector.age == 0, "the API server has just said that there is nothing more"


async def test_bookmarks_that_tell_of_progress_are_no_silence(following: Following) -> None:
    following.api.answers.append(page([pod("a")], 10))
    following.api.watches.append([60.0, bookmark(10), 60.0, bookmark(10), 60.0, bookmark(11), 60.0, bookmark(11)])
    await following.play()
    assert "GET /api/v1/pods?limit=1" not in following.api.requested


async def test_is_as_old_as_what_the_api_server_said_last(following: Following) -> None:
    api, reflector = following.api, following.reflector
    assert reflector.age is None
    api.answers.append(page([], 10))
    api.watches += [[30.0, bookmark(11), 20.0, Unavailable("reset")], [5.0, Unavailable("reset")]]
    await following.play()
    assert reflector.age == pytest.approx(25 + sum(api.slept))
    assert reflector.kind == "pods"


async def test_a_watch_that_ended_at_its_time_has_said_all_there_was(following: Following) -> None:
    following.api.answers.append(page([], 10))
    following.api.watches.append([80.0])
    await following.play()
    assert following.reflector.age == 0


async def test_waits_longer_after_each_failure_and_never_beyond_the_limit(following: Following) -> None:
    following.api.answers += [Unavailable("down")] * 12
    await following.play()
    assert following.api.slept[:4] == pytest.approx([0.15, 0.3, 0.6, 1.2])
    assert following.api.slept[-1] == 5.0 * 0.75


async def test_waits_as_long_as_the_api_server_asks_for(following: Following) -> None:
    following.api.answers += [Unavailable("too many requests", 7.0), Unavailable("forever", 86400.0), page([], 10)]
    await following.play()
    assert following.api.slept == pytest.approx([7.35, 31.5])


async def test_of_what_comes_in_one_piece_a_slice_is_taken_before_others_have_their_turn(following: Following) -> None:
    following.api.answers.append(page([], 10))
    following.api.watches.append([event("ADDED", pod(f"p{number}", 11 + number)) for number in range(1000)])
    most, told = 0, 0
    async with running(following.reflector):
        while not following.api.exhausted.is_set():
            # Where a verb would be answered.
            await asyncio.sleep(0)
            most, told = max(most, len(following.sink.log) - told), len(following.sink.log)
    assert told == 1001
    assert 1 < most <= 33


async def test_others_have_their_turn_after_events_that_took_five_milliseconds(following: Following) -> None:
    following.api.answers.append(page([], 10))
    following.api.watches.append([event("ADDED", pod(f"p{number}", 11 + number)) for number in range(100)])
    upsert = following.sink.upsert

    def slow(item: Pod) -> None:
        following.api.time += 0.002
        upsert(item)

    following.sink.upsert = slow  # type: ignore[method-assign]
    most, told = 0, 0
    async with running(following.reflector):
        while not following.api.exhausted.is_set():
            await asyncio.sleep(0)
            most, told = max(most, len(following.sink.log) - told), len(following.sink.log)
    assert (told, most) == (101, 1 + 3)


async def test_keeps_trying_what_is_refused(following: Following) -> None:
    following.api.answers += [Refused(403, "pods is forbidden"), page([pod("a")], 10)]
    with capture_logs() as logs:
        await following.play()
    assert following.sink.log == ["replace a"]
    assert [log["why"] for log in logs if log["event"] == "cannot follow"] == ["pods is forbidden"]


async def test_an_event_ends_a_row_of_failures(following: Following) -> None:
    following.api.answers += [page([], 10), page([], 11)]
    broken: list[bytes | float | Exception] = [Away("reset")]
    following.api.watches += [broken, [bookmark(11), *broken], broken, broken]
    await following.play()
    assert following.api.slept == pytest.approx([0.15, 0.15, 0.3, 0.6])
    assert following.reasons() == ["started", "broken"]


async def test_does_not_spin_on_watches_that_end_at_once(following: Following) -> None:
    following.api.answers += [page([], 10), page([], 10)]
    following.api.watches += [[], [], [150.0], []]
    await following.play()
    assert following.api.slept == pytest.approx([0.15, 0.3, 0.15])


async def test_lists_again_when_the_api_server_was_away(following: Following) -> None:
    """It may have come back with an etcd that was restored, and be past the version reached already."""
    following.api.answers += [page([pod("a", 40)], 50), page([pod("b", 20)], 60)]
    following.api.watches += [[5.0, Away("reset")], [Away("connection refused")]]
    await following.play()
    assert following.reasons() == ["started", "broken"]
    assert following.sink.log == ["replace a", "replace b"]
    assert following.watched_from() == ["50", "50", "60"]


async def test_one_failure_is_no_reason_to_list(following: Following) -> None:
    following.api.answers.append(page([], 10))
    broken: list[bytes | float | Exception] = [bookmark(11), Away("reset")]
    following.api.watches += [broken, broken, broken]
    await following.play()
    assert following.reasons() == ["started"]


async def test_a_watch_that_ended_before_its_time_leads_to_a_list(following: Following) -> None:
    """etcd may have been restored to the very version that was reached, with other contents."""
    following.api.answers += [page([pod("a", 40)], 50), page([pod("b", 20)], 50)]
    following.api.watches += [[100.0], [150.0]]
    await following.play()
    assert following.reasons() == ["started", "broken"]
    assert following.sink.log == ["replace a", "replace b"]
    assert following.watched_from() == ["50", "50", "50"]


async def test_is_not_current_while_that_list_is_still_to_come(following: Following) -> None:
    api = following.api
    api.answers += [page([pod("a")], 50)]
    api.watches += [[10.0]]
    async with running(following.reflector):
        await api.exhausted.wait()
        assert not following.reflector.current
    assert "timeoutSeconds=51" in api.requested[-1], "the next watch ends when the list is due"


async def test_lists_ever_less_often_where_every_watch_ends_before_its_time(following: Following) -> None:
    """As behind a proxy that closes connections every minute."""
    api = following.api
    api.answers += [page([], 10)] * 20
    api.watches += [[60.0] for _ in range(60)]
    await following.play()
    assert following.reasons() == ["started", *["broken"] * 7], "after 1, 2, 4, 8 and then every 15 minutes"


async def test_a_storm_of_410_leaves_as_long_between_two_lists_as_a_list_takes(following: Following) -> None:
    api = following.api
    api.answers += [page([], version) for version in range(10, 20)]
    api.watches += [[Expired(410, "old")]] * 9
    api.takes = 20.0
    await following.play()
    assert following.reasons() == ["started", *["expired"] * 9]
    assert api.slept == pytest.approx([*[20.0] * 7, 0.2 * 2**8 * 0.75])


async def test_what_a_caller_doubts_is_listed_when_the_watch_says_anything(following: Following) -> None:
    class Doubting(RecordingSink[Pod]):
        def upsert(self, item: Pod) -> None:
            following.reflector.doubt(item.name == "c")
            super().upsert(item)

    following.reflector = following.follow(Doubting())
    following.api.answers += [page([pod("a")], 10), page([pod("d")], 13)]
    following.api.watches += [[event("ADDED", pod("b", 11)), event("ADDED", pod("c", 12)), bookmark(13)]]
    await following.play()
    assert following.reasons() == ["started", "doubted"]
    assert following.watched_from() == ["10", "13"]


async def test_lists_again_when_watches_fail_for_long(following: Following) -> None:
    """The API server is there, and spared for longer."""
    following.api.answers += [page([], 99), page([pod("a")], 5)]
    following.api.watches += [[Unavailable("Too large resource version")]] * 8
    await following.play()
    assert following.reasons() == ["started", "broken"]
    assert following.watched_from() == ["99"] * 8 + ["5"]


@pytest.mark.parametrize(
    "line", [event("ERROR", status(500, "etcd has no leader")), b'{"type":"ERROR","object":"what"}']
)
async def test_lists_again_after_an_error_in_the_watch(following: Following, line: bytes) -> None:
    following.api.answers += [page([], 10), page([pod("a")], 20)]
    following.api.watches.append([line, event("ADDED", pod("ghost", 11))])
    await following.play()
    assert following.sink.log == ["replace ", "replace a"]
    assert following.reasons() == ["started", "broken"]
    assert len(following.api.slept) == 1


@pytest.mark.parametrize("line", [b"<html>", b"[]", b'{"type":"ADDED"}', b'{"type": "ADDED", "obj', b"\xff\xfe"])
async def test_a_line_that_is_no_event_breaks_the_watch_and_nothing_else(following: Following, line: bytes) -> None:
    following.api.answers.append(page([], 10))
    following.api.watches += [[event("ADDED", pod("a", 11)), line], [event("ADDED", pod("b", 12))]]
    await following.play()
    assert following.sink.log == ["replace ", "upsert a", "upsert b"]
    assert following.watched_from() == ["10", "11", "12"]
    assert following.reasons() == ["started"]


@pytest.mark.parametrize("body", [b"", b"<html>", b"{}", b'{"metadata":{},"items":7}', b"\xff"])
async def test_an_answer_that_is_no_list_is_a_failure(following: Following, body: bytes) -> None:
    following.api.answers += [body, page([pod("a")], 10)]
    await following.play()
    assert following.sink.log == ["replace a"]
    assert len(following.api.slept) == 1


async def test_passes_over_what_cannot_be_understood_and_says_so_once(following: Following) -> None:
    odd = pod("odd", 11, cpu="many")
    nameless = pod("nameless", 12)
    del nameless["metadata"]["name"]
    following.api.answers.append(page([pod("a"), odd, pod("b")], 10))
    following.api.watches.append(
        [
            event("MODIFIED", odd),
            event("ADDED", nameless),
            event("ADDED", pod("c", 13)),
            event("ADDED", {"metadata": 7}),
        ]
    )
    with capture_logs() as logs:
        await following.play()
    assert following.sink.log == ["replace a,b", "upsert c"]
    assert following.watched_from() == ["10", "13"]
    passed_over = [(log["object"], log["why"]) for log in logs if log["event"] == "an object is skipped"]
    assert [what for what, _ in passed_over] == ["team-a/odd", "team-a/", "an object without a name"]
    assert "spec.containers[0].resources.requests[cpu]: 'many' is not a quantity" in passed_over[0][1]


async def test_forgets_what_it_has_reported_rather_than_grow_without_end(following: Following) -> None:
    following.api.answers.append(page([pod(f"p{number}", cpu="x") for number in range(1025)], 10))
    with capture_logs() as logs:
        await following.play()
    assert sum(log["event"] == "an object is skipped" for log in logs) == 1025


async def test_a_null_list_is_an_empty_one(following: Following) -> None:
    following.api.answers.append(b'{"metadata":{"resourceVersion":"7"},"items":null}')
    await following.play()
    assert following.sink.log == ["replace "]


async def test_a_defect_of_the_sink_is_not_hidden() -> None:
    class Defective(RecordingSink[Node]):
        def upsert(self, item: Node) -> None:
            raise ZeroDivisionError

    api = ScriptedApi()
    api.answers.append(page([node()], 10))
    api.watches.append([event("ADDED", node("n2", 11))])
    with pytest.raises(ZeroDivisionError):
        await Reflector(api, kinds.nodes(), Defective()).run()


async def test_follows_nodes_and_ephemeral_resources_too() -> None:
    for kind, path in (
        (kinds.nodes(), "/api/v1/nodes"),
        (kinds.ours(EphemeralResources()), "/apis/escher.dev/v1alpha1/ephemeralresources"),
    ):
        assert kind.path == path
        assert kind.read_page(page([], 3)).version == "3"


class BySteps(RecordingSink[Pod]):
    """One to each pod."""

    def replace(self, objects: Iterable[Pod]) -> Iterator[None]:
        for each in objects:
            self.log.append(f"listed {each.name}")
            yield


async def test_every_list_is_taken_in_by_steps_between_which_others_have_their_turn_and_the_watch_comes_after() -> None:
    api, sink = ScriptedApi(), BySteps()
    reflector = Reflector(api, kinds.pods(5.0), sink, sleep=api.sleep, clock=api.clock, page_size=9)
    api.answers += [page([pod("a"), pod("b")], 10), page([pod("b"), pod("d")], 100)]
    api.watches += [[event("ADDED", pod("c", 11)), Expired(410, "too old")], [event("ADDED", pod("e", 101)), 500.0]]
    current: list[bool] = []

    async def another() -> None:
        while not api.exhausted.is_set():
            if sink.log and sink.log[-1].startswith("listed"):
                current.append(reflector.current)
            sink.log.append("another's turn")
            await asyncio.sleep(0)

    async with running(reflector):
        await another()
    told = [each for each in sink.log if each != "another's turn"]
    assert told == ["listed a", "listed b", "upsert c", "listed b", "listed d", "upsert e"]
    for one, next_one in (("listed a", "listed b"), ("listed b", "upsert c"), ("listed d", "upsert e")):
        assert "another's turn" in sink.log[sink.log.index(one) : sink.log.index(next_one)]
    assert current
    assert not any(current)
    assert reflector.current


async def test_what_there_is_already_is_taken_in_to_its_end() -> None:
    sink = BySteps()
    reflector = Reflector(ScriptedApi(), kinds.pods(5.0), sink)
    reflector.begin_from(kinds.pods(5.0).read_page(page([pod("a"), pod("b")], 10)).items, "10")
    assert sink.log == ["listed a", "listed b"]
    assert reflector.synced.is_set()


async def test_while_thousands_are_listed_again_others_have_their_turns() -> None:
    api, clock = ScriptedApi(), LoopClock()
    scheduler = Scheduler(clock)
    reflector = Reflector(
        api,
        kinds.pods(5.0),
        Facts(Pod, scheduler, Performing(), FlightRecorder(clock)),
        sleep=api.sleep,
        clock=api.clock,
    )
    there = [pod(f"p{number}") for number in range(3_000)]
    api.answers += [page(there, 10), page(there[1_000:], 100)]
    api.watches += [[Expired(410, "too old")]]
    turns = {"first": 0, "later": 0}

    async def another() -> None:
        while not api.exhausted.is_set():
            turns["later" if reflector.synced.is_set() else "first"] += not scheduler.cache.whole
            await asyncio.sleep(0)

    async with running(reflector):
        await another()
    # All are pending, and looked at once more in the first.
    assert turns == {"first": 30, "later": 15}
    assert len(scheduler.cache.pods) == 2_000
    assert scheduler.cache.whole
