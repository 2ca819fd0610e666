"""Reviews: who somebody is, and what they may do."""

from __future__ import annotations

import json
import random

import pytest

from kubesim.apiserver.machinery.wire import Answer, Request
from kubesim.apiserver.serving.api import ApiServer
from kubesim.apiserver.storage import reviews
from kubesim.clock import Clock
from kubesim.kinds import Json, Kind
from tests.kubesim.apiserver.apis import Api

pytestmark = pytest.mark.anyio

BY_NAME = {kind.name: kind for kind in reviews.KINDS}


def _asked(name: str, spec: Json, namespace: str = "") -> Json:
    kind = BY_NAME[name]
    body = {"apiVersion": kind.api_version, "kind": name, "spec": spec}
    return Api().ok("POST", kind.path(namespace), body)


@pytest.mark.parametrize("name", ["SelfSubjectAccessReview", "SubjectAccessReview", "LocalSubjectAccessReview"])
async def test_everybody_may_do_everything(name: str) -> None:
    spec = {"resourceAttributes": {"verb": "delete", "resource": "pods"}, "user": "bob"}
    answered = _asked(name, spec, "default" if BY_NAME[name].namespaced else "")
    assert answered["spec"] == spec
    assert answered["status"]["allowed"] is True


async def test_the_rules_are_all_of_them() -> None:
    status = _asked("SelfSubjectRulesReview", {"namespace": "default"})["status"]
    assert status["resourceRules"] == [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
    assert status["incomplete"] is False


def _with_tokens(name: str, token: str, spec: Json) -> Json:
    api = ApiServer(Clock(), random.Random(1), token="secret", tokens={"other": "bob"})
    kind = BY_NAME[name]
    body = b'{"spec": {"token": "%b"}}' % str(spec.get("token", "")).encode()
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    answer = api.handle(Request("POST", kind.path(), {}, headers, body))
    assert isinstance(answer, Answer)
    assert answer.status == 201
    found: Json = json.loads(answer.body)
    return found


async def test_whose_token_it_is_is_told() -> None:
    review = _with_tokens("TokenReview", "secret", {"token": "other"})
    assert review["status"] == {"authenticated": True, "user": {"username": "bob", "groups": ["system:authenticated"]}}
    assert _with_tokens("TokenReview", "secret", {"token": "nobody's"})["status"] == {"user": {}}


async def test_who_asks_is_told_who_it_is() -> None:
    assert _with_tokens("SelfSubjectReview", "other", {})["status"]["userInfo"]["username"] == "bob"
    anonymous = Api().ok("POST", BY_NAME["SelfSubjectReview"].path(), {})
    assert anonymous["status"]["userInfo"]["username"] == "system:anonymous"


async def test_who_asks_who_it_is_is_told_the_time_too() -> None:
    kind, api = BY_NAME["SelfSubjectReview"], Api()
    assert api.ok("POST", kind.path(), {})["metadata"]["creationTimestamp"] == api.server._clock.stamp()
    assert _asked("SelfSubjectAccessReview", {"resourceAttributes": {}})["metadata"]["creationTimestamp"] is None


async def test_what_others_may_do_is_answered_as_it_is_told() -> None:
    api = ApiServer(Clock(), random.Random(1), allows=lambda spec: bool(spec["user"] == "bob"))
    kind = BY_NAME["SubjectAccessReview"]
    for user, allowed in (("bob", True), ("eve", False)):
        spec = {"user": user, "resourceAttributes": {"verb": "get", "resource": "pods"}}
        body = json.dumps({"spec": spec}).encode()
        answer = api.handle(Request("POST", kind.path(), {}, {"content-type": "application/json"}, body))
        assert isinstance(answer, Answer)
        assert json.loads(answer.body)["status"]["allowed"] is allowed


@pytest.mark.parametrize("kind", reviews.KINDS, ids=repr)
async def test_nothing_of_them_is_kept(kind: Kind) -> None:
    assert Api().refused("GET", kind.path("default"))[0] == 405
    assert Api().refused("GET", kind.path("default", "x"))[0] == 405
