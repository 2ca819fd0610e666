"""Authority: the API server's answers are believed for seconds, asked for once, and never guessed."""

from __future__ import annotations

import asyncio

import pytest

from extender.app.admin.authorization import Authorization, Caller, Right
from extender.kube.errors import Unavailable

pytestmark = pytest.mark.anyio

ALICE, BOB = Caller("alice"), Caller("bob", groups=("team",))
GET = Right(verb="get", resource="gangs", namespace="team-a", name="train")


class Asked:
    """An API server that knows tokens by their owners, and rights; `asked` has each question."""

    def __init__(self) -> None:
        self.tokens = {"a": ALICE, "b": BOB}
        self.rights: set[tuple[str, Right]] = set()
        self.asked: list[object] = []
        self.away = False
        self.gate: asyncio.Event | None = None

    async def whose(self, token: str) -> Caller | None:
        await self._note(token)
        return self.tokens.get(token)

    async def allows(self, caller: Caller, right: Right) -> bool:
        await self._note((caller.name, right))
        return (caller.name, right) in self.rights

    async def _note(self, question: object) -> None:
        self.asked.append(question)
        if self.gate is not None:
            await self.gate.wait()
        if self.away:
            raise Unavailable("away")


class Site:
    def __init__(self, believed: float = 10.0) -> None:
        self.time = 0.0
        self.reviews = Asked()
        self.authority = Authorization(self.reviews, lambda: self.time, believed)


@pytest.fixture
def site() -> Site:
    return Site()


async def test_an_owner_is_believed_for_so_long_and_then_asked_for_again(site: Site) -> None:
    assert await site.authority.who("a") == ALICE
    site.time = 9.9
    assert await site.authority.who("a") == ALICE
    assert site.reviews.asked == ["a"]
    del site.reviews.tokens["a"]
    site.time = 10.0
    assert await site.authority.who("a") is None
    assert site.reviews.asked == ["a", "a"]


async def test_a_token_of_nobodys_is_remembered_as_well_and_drives_out_no_other(site: Site) -> None:
    assert await site.authority.who("a") == ALICE
    for number in range(10_000):
        assert await site.authority.who(f"guessed-{number}") is None
    assert await site.authority.who("guessed-9999") is None
    assert await site.authority.who("a") == ALICE
    assert len(site.reviews.asked) == 10_001


async def test_a_right_to_all_of_a_kind_is_one_question_for_every_name(site: Site) -> None:
    site.reviews.rights.add(("alice", Right(verb="get", resource="gangs", namespace="team-a")))
    for name in ("train", "test", "x"):
        assert await site.authority.may(ALICE, Right(verb="get", resource="gangs", namespace="team-a", name=name))
    assert len(site.reviews.asked) == 1


async def test_a_right_to_one_name_is_none_to_another(site: Site) -> None:
    site.reviews.rights.add(("alice", GET))
    assert await site.authority.may(ALICE, GET)
    assert not await site.authority.may(ALICE, Right(verb="get", resource="gangs", namespace="team-a", name="other"))
    assert not await site.authority.may(ALICE, Right(verb="get", resource="gangs", namespace="team-a"))


@pytest.mark.parametrize(
    "other",
    [
        Right(verb="list", resource="gangs", namespace="team-a", name="train"),
        Right(verb="get", resource="quotas", namespace="team-a", name="train"),
        Right(verb="get", resource="gangs", namespace="team-b", name="train"),
        Right(verb="get", resource="gangs", name="train"),
        Right(verb="get", resource="gangs/ask", namespace="team-a", name="train"),
    ],
    ids=str,
)
async def test_a_right_is_of_one_verb_kind_and_namespace_and_of_one_caller(site: Site, other: Right) -> None:
    site.reviews.rights.add(("alice", GET))
    assert await site.authority.may(ALICE, GET)
    assert not await site.authority.may(ALICE, other)
    assert not await site.authority.may(BOB, GET)
    assert not await site.authority.may(Caller("alice", groups=("other",), uid="2"), other)


async def test_a_right_that_is_taken_away_is_gone_within_seconds(site: Site) -> None:
    site.reviews.rights.add(("alice", GET))
    assert await site.authority.may(ALICE, GET)
    site.reviews.rights.clear()
    site.time = 10.0
    assert not await site.authority.may(ALICE, GET)


async def test_what_the_api_server_does_not_say_is_not_allowed_and_not_remembered(site: Site) -> None:
    site.reviews.away = True
    with pytest.raises(Unavailable):
        await site.authority.who("a")
    with pytest.raises(Unavailable):
        await site.authority.may(ALICE, GET)
    site.reviews.away = False
    assert await site.authority.who("a") == ALICE
    assert not await site.authority.may(ALICE, GET)


async def test_many_who_wait_for_one_answer_ask_for_it_once_and_one_who_leaves_takes_it_from_nobody(
    site: Site,
) -> None:
    site.reviews.gate = asyncio.Event()
    waiting = [asyncio.create_task(site.authority.who("a")) for _ in range(50)]
    await asyncio.sleep(0)
    waiting.pop(0).cancel()
    site.reviews.gate.set()
    assert await asyncio.gather(*waiting) == [ALICE] * 49
    assert site.reviews.asked == ["a"]


async def test_with_no_seconds_everything_is_asked_anew() -> None:
    site = Site(believed=0.0)
    for _ in range(3):
        assert await site.authority.who("a") == ALICE
    assert site.reviews.asked == ["a"] * 3


async def test_a_right_says_what_is_missing_as_kubectl_would() -> None:
    assert str(GET) == "get gangs.escher.dev train in namespace team-a"
    assert str(Right(verb="list", resource="nodestates")) == "list nodestates.escher.dev in all namespaces"
    assert str(Right(verb="get", path="/metrics")) == "get /metrics"
