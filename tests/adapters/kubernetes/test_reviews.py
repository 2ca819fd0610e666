"""Reviews: whose a token is and what they may do, asked of an API server."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from extender.adapters.kubernetes.writers.reviews import ACCESS, TOKENS, ApiReviews
from extender.app.admin.authorization import Caller, Right
from extender.kube.client.requests import JSON, TIMEOUT
from kubesim.apiserver.serving.api import ApiServer
from kubesim.apiserver.serving.in_process import InProcess
from kubesim.clock import Clock
from kubesim.kinds import Json

pytestmark = pytest.mark.anyio

ALICE = Caller("alice", "u-1", ("team", "system:authenticated"), (("scopes", ("a", "b")),))


class Answering:
    """Answers every request with this; `asked` has path and body."""

    def __init__(self, **status: Any) -> None:
        self.status = status
        self.asked: list[tuple[str, Any]] = []

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        accept: str = JSON,
        within: float = TIMEOUT,
    ) -> bytes:
        assert method == "POST"
        self.asked.append((path, json.loads(body or b"null")))
        return json.dumps({"kind": "Review", "status": self.status}).encode()

    def lines(self, path: str, *, silence: float) -> Any:
        raise AssertionError("nothing is followed")


class TestTokens:
    async def test_the_embedded_api_server_knows_whose_they_are(self) -> None:
        api = ApiServer(Clock(), random.Random(1), token="admin", tokens={"t": "system:serviceaccount:team-a:app"})
        reviews = ApiReviews(InProcess(api))
        found = await reviews.whose("t")
        assert found == Caller("system:serviceaccount:team-a:app", "", ("system:authenticated",))
        assert await reviews.whose("nobody's") is None

    async def test_all_of_the_owner_is_kept(self) -> None:
        user = {"username": "alice", "uid": "u-1", "groups": list(ALICE.groups), "extra": {"scopes": ["a", "b"]}}
        requests = Answering(authenticated=True, user=user)
        assert await ApiReviews(requests).whose("t") == ALICE
        assert requests.asked == [
            (TOKENS, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "t"}})
        ]

    @pytest.mark.parametrize(
        "status",
        [
            {},
            {"authenticated": False, "user": {"username": "alice"}},
            {"authenticated": True},
            {"authenticated": True, "user": {"username": ""}},
            {"error": "expired", "user": {}},
        ],
        ids=str,
    )
    async def test_whoever_is_not_surely_somebody_is_nobody(self, status: Json) -> None:
        assert await ApiReviews(Answering(**status)).whose("t") is None

    @pytest.mark.parametrize(
        ("audiences", "good"), [(["escher"], True), (["other", "escher"], True), (["api"], False), (None, False)]
    )
    async def test_a_token_made_for_others_is_nobodys(self, audiences: list[str] | None, good: bool) -> None:
        status: Json = {"authenticated": True, "user": {"username": "alice"}}
        if audiences is not None:
            status["audiences"] = audiences
        requests = Answering(**status)
        assert (await ApiReviews(requests, ["escher"]).whose("t") is not None) is good
        assert requests.asked[0][1]["spec"] == {"token": "t", "audiences": ["escher"]}


class TestAccess:
    async def test_everything_that_is_known_is_asked_about(self) -> None:
        requests = Answering(allowed=True)
        right = Right(verb="create", resource="ephemeralresources/shared", namespace="team-a", name="data1")
        assert await ApiReviews(requests).allows(ALICE, right)
        [(path, body)] = requests.asked
        assert path == ACCESS
        assert body["spec"] == {
            "user": "alice",
            "uid": "u-1",
            "groups": ["team", "system:authenticated"],
            "extra": {"scopes": ["a", "b"]},
            "resourceAttributes": {
                "group": "escher.dev",
                "verb": "create",
                "resource": "ephemeralresources",
                "subresource": "shared",
                "namespace": "team-a",
                "name": "data1",
            },
        }

    async def test_a_path_is_asked_about_as_one(self) -> None:
        requests = Answering(allowed=False)
        assert not await ApiReviews(requests).allows(ALICE, Right(verb="get", path="/metrics"))
        assert requests.asked[0][1]["spec"]["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}

    @pytest.mark.parametrize("status", [{}, {"allowed": False}, {"allowed": True, "denied": True}], ids=str)
    async def test_what_is_not_surely_allowed_is_not(self, status: Json) -> None:
        assert not await ApiReviews(Answering(**status)).allows(ALICE, Right(verb="get", resource="gangs"))

    async def test_the_embedded_api_server_answers_as_it_is_told(self) -> None:
        asked: list[Json] = []

        def allows(spec: Json) -> bool:
            asked.append(spec)
            return bool(spec["resourceAttributes"]["namespace"] == "team-a")

        reviews = ApiReviews(InProcess(ApiServer(Clock(), random.Random(1), allows=allows)))
        assert await reviews.allows(ALICE, Right(verb="get", resource="gangs", namespace="team-a"))
        assert not await reviews.allows(ALICE, Right(verb="get", resource="gangs", namespace="team-b"))
        assert len(asked) == 2
