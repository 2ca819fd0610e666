"""Reviews: objects that are answered but not stored: a user's identity and permissions.

Every admitted user may do everything here; reviews answer so, but `allows` may decide SubjectAccessReviews.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kubesim.kinds import Json, Kind

_AUTHORIZATION, _AUTHENTICATION = "authorization.k8s.io", "authentication.k8s.io"
_CREATE = ("create",)


def _kind(group: str, name: str, *, namespaced: bool = False) -> Kind:
    return Kind(group, "v1", name, f"{name.lower()}s", namespaced, verbs=_CREATE)


KINDS = (
    _kind(_AUTHORIZATION, "SelfSubjectAccessReview"),
    _kind(_AUTHORIZATION, "SelfSubjectRulesReview"),
    _kind(_AUTHORIZATION, "SubjectAccessReview"),
    _kind(_AUTHORIZATION, "LocalSubjectAccessReview", namespaced=True),
    _kind(_AUTHENTICATION, "SelfSubjectReview"),
    _kind(_AUTHENTICATION, "TokenReview"),
)

_EVERYTHING = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
_EVERY_PATH = {"verbs": ["*"], "nonResourceURLs": ["*"]}


Allows = Callable[[Json], bool]
"""Whether a user may do something, by the spec of a SubjectAccessReview."""


def answered(
    kind: Kind,
    body: Json,
    user: Json,
    of_token: Callable[[str], Json | None],
    now: str,
    allows: Allows | None = None,
) -> Json:
    """The review with its status. `user` sends it at `now`. `of_token`: a token's user, or None.

    `allows`: decides SubjectAccessReviews; None allows everything."""
    spec = body.get("spec") if isinstance(body.get("spec"), Mapping) else {}
    match kind.name:
        case "SelfSubjectReview":
            status: Json = {"userInfo": user}
        case "SelfSubjectRulesReview":
            status = {"resourceRules": [_EVERYTHING], "nonResourceRules": [_EVERY_PATH], "incomplete": False}
        case "TokenReview":
            token = (spec or {}).get("token")
            found = of_token(token) if isinstance(token, str) else None
            status = {"authenticated": True, "user": found} if found is not None else {"user": {}}
        case "SubjectAccessReview" if allows is not None:
            status = {"allowed": allows(spec or {})}
        case _:
            status = {"allowed": True, "reason": "the embedded cluster lets everybody do everything"}
    metadata = body.get("metadata") if isinstance(body.get("metadata"), Mapping) else {}
    said: Json = {"kind": kind.name, "apiVersion": kind.api_version, "metadata": {**(metadata or {})}}
    said["metadata"].setdefault("creationTimestamp", None)
    if kind.name == "SelfSubjectReview":
        # Only SelfSubjectReview has a creation time.
        said["metadata"]["creationTimestamp"] = now
    return said | ({"spec": spec} if kind.name != "SelfSubjectReview" else {}) | {"status": status}
