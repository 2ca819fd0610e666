"""Asks over HTTP: what is asked arrives in the application's words, and every answer and refusal has its form."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from extender.adapters.http.routes.asks import AnswerView, AskBody
from extender.app.contracts.errors import NotInForce, NotYet
from extender.app.contracts.kind import Identity
from extender.esl.runtime.policy_esl import Task
from extender.kube.errors import Unavailable
from tests.adapters.http.fakes import NotedManagement, Ready
from tests.adapters.http.told import problem
from tests.builders import units

pytestmark = pytest.mark.anyio
PATH = "/v1/namespaces/team/policies/slots:ask"
SLOTS = Identity("team", "slots")


@pytest.mark.parametrize(
    ("path", "body", "asked"),
    [
        (PATH, {"task": {"name": "a"}}, (SLOTS, Task("a"), False)),
        (f"{PATH}?dryRun=All", {"task": {"name": "a", "group": "", "needs": None}}, (SLOTS, Task("a"), True)),
        (
            PATH,
            {"task": {"name": "a", "group": "g", "needs": {"cpu": 0.5, "x.y/z": "2"}, "node_labels": {"zone": "b"}}},
            (SLOTS, Task("a", "g", units({"cpu": 500, "x.y/z": 2}), {"zone": "b"}), False),
        ),
        (PATH, AskBody.model_config["json_schema_extra"]["examples"][0], None),  # type: ignore[index]
    ],
)
async def test_what_is_asked_arrives(
    client: httpx.AsyncClient, management: NotedManagement, path: str, body: Any, asked: object
) -> None:
    answer = await client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    assert management.asked == [asked or (SLOTS, AskBody.model_validate(body).asked(), False)]
    told = answer.json()
    assert AnswerView.model_validate(told)
    assert (told["namespace"], told["policy"], told["type"], told["effects"]) == ("team", "slots", "queue", ["done"])


@pytest.mark.parametrize(
    ("error", "status", "headers"),
    [
        (NotInForce("name", "team/slots", "nothing of it is in force"), 409, {}),
        (NotYet("name", "team/slots", "not yet", retry_after=7), 503, {"retry-after": "7"}),
        (Unavailable("away", 3.2), 503, {"retry-after": "4"}),
    ],
)
async def test_what_cannot_be_answered_is_a_problem(
    client: httpx.AsyncClient, management: NotedManagement, error: Exception, status: int, headers: dict[str, str]
) -> None:
    management.fail = error
    refused = await client.post(PATH, json={"task": {"name": "a"}})
    problem(refused, status)
    assert headers.items() <= dict(refused.headers).items()


async def test_nobody_is_asked_before_all_is_known(client: httpx.AsyncClient, ready: Ready) -> None:
    ready.now = False
    problem(await client.post(PATH, json={"task": {"name": "a"}}), 503)


@pytest.mark.parametrize("path", ["/v1/namespaces/Team/policies/a:ask", "/v1/namespaces/team/policies/A:ask"])
async def test_a_name_that_nothing_has_is_refused(client: httpx.AsyncClient, path: str) -> None:
    problem(await client.post(path, json={"task": {"name": "a"}}), 422)


async def test_nothing_but_a_post_asks(client: httpx.AsyncClient) -> None:
    assert (await client.put(PATH, json={"type": "queue"})).status_code in (405, 422)
    problem(await client.get(PATH), 422, "name")
