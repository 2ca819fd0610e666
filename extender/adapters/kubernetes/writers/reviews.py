"""Reviews: the API server says whose a token is, and what a caller may do.

The requests use the service's own credentials, which may `create` these two kinds.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from extender.app.admin.authorization import GROUP, Caller, Right
from extender.kube.client.requests import Requests

TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
WITHIN = 5.0
"""Seconds: the caller waits for the answer."""


class _User(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    user: _User = msgspec.field(default_factory=_User)
    audiences: list[str] | None = None


class _TokenReview(msgspec.Struct):
    status: _TokenStatus


class _AccessStatus(msgspec.Struct):
    allowed: bool = False
    denied: bool = False


class _AccessReview(msgspec.Struct):
    status: _AccessStatus


class ApiReviews:
    """`authority.Reviews`. A token must be for one of the `audiences`; none: for the API server."""

    def __init__(self, requests: Requests, audiences: Sequence[str] = ()) -> None:
        self._requests = requests
        self._audiences = list(audiences)

    async def whose(self, token: str) -> Caller | None:
        spec: dict[str, object] = {"token": token}
        if self._audiences:
            spec["audiences"] = self._audiences
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        answer = await self._requests.request("POST", TOKENS, msgspec.json.encode(review), within=WITHIN)
        said = msgspec.json.decode(answer, type=_TokenReview).status
        user = said.user
        if not said.authenticated or not user.username:
            return None
        # An authenticator without audience support names none, so it has not checked the audience.
        if self._audiences and not set(self._audiences) & set(said.audiences or ()):
            return None
        extra = tuple(sorted((key, tuple(values)) for key, values in (user.extra or {}).items()))
        return Caller(user.username, user.uid, tuple(user.groups or ()), extra)

    async def allows(self, caller: Caller, right: Right) -> bool:
        spec: dict[str, object] = {
            "user": caller.name,
            "uid": caller.uid,
            "groups": caller.groups,
            "extra": {key: list(values) for key, values in caller.extra},
        }
        if right.path:
            spec["nonResourceAttributes"] = {"path": right.path, "verb": right.verb}
        else:
            resource, _, subresource = right.resource.partition("/")
            spec["resourceAttributes"] = {
                "group": GROUP,
                "verb": right.verb,
                "resource": resource,
                "subresource": subresource,
                "namespace": right.namespace,
                "name": right.name,
            }
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        answer = await self._requests.request("POST", ACCESS, msgspec.json.encode(review), within=WITHIN)
        said = msgspec.json.decode(answer, type=_AccessReview).status
        return said.allowed and not said.denied
