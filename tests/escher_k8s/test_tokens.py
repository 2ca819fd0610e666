"""Tokens: which one says who calls, and when none is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from escher_k8s import AsyncEscher, Contradiction, Escher, EscherError, NotAllowed, TooManyCalls, Unauthenticated
from escher_k8s.errors import problem
from escher_k8s.management.tokens import Token, token_for

HTTPS, HTTP = "https://escher.test", "http://127.0.0.1:8080"


@pytest.fixture
def in_pod(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text("of-the-pod\n")
    return file


@pytest.mark.parametrize(
    ("url", "environment", "said"),
    [
        (HTTPS, {}, None),
        (HTTPS, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "Bearer of-the-pod"),
        # Whoever listens on the way could use it for the API server.
        (HTTP, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, None),
        (HTTP, {"ESCHER_TOKEN": "said "}, "Bearer said"),
        (HTTPS, {"ESCHER_TOKEN": "said", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "Bearer said"),
        (HTTPS, {"ESCHER_TOKEN": "", "ESCHER_TOKEN_FILE": ""}, None),
    ],
)
def test_a_token_is_sent_where_it_is_said_or_the_pod_has_one_for_https(
    in_pod: Path, url: str, environment: dict[str, str], said: str | None
) -> None:
    assert token_for(url, None, None, environment, in_pod).header() == said


def test_what_the_client_is_given_comes_first(in_pod: Path) -> None:
    environment = {"ESCHER_TOKEN": "said", "ESCHER_TOKEN_FILE": str(in_pod)}
    assert token_for(HTTPS, "given", None, environment).header() == "Bearer given"
    assert token_for(HTTPS, None, in_pod, environment).header() == "Bearer of-the-pod"
    del environment["ESCHER_TOKEN"]
    assert token_for(HTTPS, None, None, environment).header() == "Bearer of-the-pod"
    with pytest.raises(Contradiction):
        token_for(HTTPS, "given", in_pod, {})


def test_a_file_is_read_again_for_every_call(in_pod: Path) -> None:
    token = token_for(HTTPS, None, in_pod, {})
    assert token.header() == "Bearer of-the-pod"
    in_pod.write_text("renewed")
    assert token.header() == "Bearer renewed"


def test_a_file_that_is_away_is_an_error_unless_it_is_the_pods_own(tmp_path: Path) -> None:
    with pytest.raises(EscherError, match=r"the token cannot be read from .*/none: "):
        token_for(HTTPS, None, tmp_path / "none", {}).header()
    without = token_for(HTTPS, None, None, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, tmp_path / "none")
    assert without.header() is None


@pytest.mark.parametrize("text", ["", "two words", "line\nbreak", "münze"])
def test_what_is_no_token_is_told_and_not_shown(text: str) -> None:
    with pytest.raises(EscherError, match="is not a bearer token") as told:
        Token(text).header()
    assert not text or text not in str(told.value)


def test_a_token_is_in_no_representation() -> None:
    assert "secret" not in repr(Token("secret"))


@pytest.mark.parametrize("kind", [Escher, AsyncEscher])
def test_both_clients_send_it_with_every_call(kind: type[Any], in_pod: Path) -> None:
    seen: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("Authorization"))
        return httpx.Response(200, json={"items": [], "continue": None})

    def renew() -> None:
        in_pod.write_text("renewed")

    async def awaited() -> None:
        async with AsyncEscher(HTTPS, token_file=in_pod, transport=httpx.MockTransport(answer)) as escher:
            await escher.list_gangs()
            renew()
            await escher.list_gangs()

    if kind is AsyncEscher:
        asyncio.run(awaited())
    else:
        with Escher(HTTPS, token_file=in_pod, transport=httpx.MockTransport(answer)) as escher:
            escher.list_gangs()
            renew()
            escher.list_gangs()
    assert seen == ["Bearer of-the-pod", "Bearer renewed"]


@pytest.mark.parametrize(
    ("status", "slug", "kind"),
    [(401, "unauthenticated", Unauthenticated), (403, "not-allowed", NotAllowed), (429, "too-many", TooManyCalls)],
)
@pytest.mark.parametrize("body", ["problem", "a proxy's"])
def test_why_it_is_refused_is_an_error_of_its_own(status: int, slug: str, kind: type[Any], body: str) -> None:
    content = b'{"type": "urn:escher:problem:%b", "detail": "no"}' % slug.encode() if body == "problem" else b"<html>"
    assert type(problem(status, "No", content, "3")) is kind


def test_too_many_calls_are_made_again_later(pauses: list[float]) -> None:
    answers: list[Callable[[], httpx.Response]] = [
        lambda: httpx.Response(429, headers={"Retry-After": "3"}, json={"type": "urn:escher:problem:too-many"}),
        lambda: httpx.Response(200, json={"items": [], "continue": None}),
    ]
    transport = httpx.MockTransport(lambda request: answers.pop(0)())
    with Escher(HTTPS, transport=transport) as escher:
        assert escher.list_gangs() == []
    assert len(pauses) == 1
    assert pauses[0] >= 3
