"""Reads: single objects and lists, in consistent pages, of now or of a former version.

It parses resource versions and continue tokens.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec

from kubesim.apiserver.machinery.failures import Failure, bad_request, expired, not_found, too_new
from kubesim.apiserver.machinery.selectors import Selector, field_selector, label_selector
from kubesim.apiserver.machinery.served import Target
from kubesim.apiserver.machinery.store import Compacted, Store
from kubesim.kinds import Json, Kind

_TOO_OLD = "The resourceVersion for the provided list is too old."
_CONTINUE_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)
_TOKEN_VERSION = "meta.k8s.io/v1"
_LATEST = -1


@dataclass(frozen=True)
class Page:
    """A list or one page of it, and its ListMeta."""

    items: list[Json]
    metadata: Json


def get(store: Store, target: Target) -> Json:
    """The object. Raises Failure (404)."""
    found = store.get(target.kind, target.where, target.name)
    if found is None:
        raise not_found(target.kind, target.name)
    return found


def selector(kind: Kind, query: dict[str, str]) -> Selector | None:
    """A predicate for the query's selectors; None if it has none. Raises Failure (400)."""
    labels = label_selector(query.get("labelSelector", ""))
    fields = field_selector(kind, query.get("fieldSelector", ""))
    if labels is None or fields is None:
        return labels or fields
    both: tuple[Selector, Selector] = (labels, fields)
    return lambda obj: both[0](obj) and both[1](obj)


def page(store: Store, target: Target, query: dict[str, str]) -> Page:
    """The list that the query asks for. Raises Failure (400, 410, 422, 504)."""
    selected = selector(target.kind, query)
    # A list with resourceVersion 0 ignores the limit, as if it came from a cache.
    cached = query.get("resourceVersion") == "0" and not query.get("continue")
    limit = 0 if cached else max(0, _number(query, "limit"))
    version, after = _place(store, query)
    namespace = target.namespace if target.kind.namespaced else None
    if version == store.version and not limit and not after:
        objects = store.list(target.kind, namespace)
        items = objects if selected is None else [obj for obj in objects if selected(obj)]
        return Page(items, {"resourceVersion": str(version)})
    try:
        past = store.list_at(target.kind, version, namespace, after)
    except Compacted:
        if query.get("continue"):
            raise expired(_CONTINUE_TOO_OLD, following=_token(after, _LATEST)) from None
        raise expired(_TOO_OLD) from None
    found = past if selected is None else ((key, obj) for key, obj in past if selected(obj))
    if not limit:
        return Page([obj for _, obj in found], {"resourceVersion": str(version)})
    first = list(islice(found, limit + 1))
    if len(first) <= limit:
        return Page([obj for _, obj in first], {"resourceVersion": str(version)})
    shown = first[:limit]
    metadata: Json = {"resourceVersion": str(version), "continue": _token(shown[-1][0], version)}
    if selected is None:
        metadata["remainingItemCount"] = 1 + sum(1 for _ in past)
    return Page([obj for _, obj in shown], metadata)


def _place(store: Store, query: dict[str, str]) -> tuple[int, str]:
    """The version that the list shows, and the key after which it begins."""
    token, asked = query.get("continue", ""), query.get("resourceVersion", "")
    match = query.get("resourceVersionMatch", "")
    _check_match(match, asked, token)
    if token:
        if asked not in ("", "0"):
            raise bad_request("specifying resource version is not allowed when using continue")
        version, after = _read_token(token)
        return (store.version if version == _LATEST else version), after
    if asked in ("", "0"):
        return store.version, ""
    version = parse_version(asked)
    if version > store.version:
        raise too_new(version, store.version)
    return (version if match == "Exact" else store.version), ""


def _check_match(match: str, asked: str, token: str) -> None:
    why = ""
    if not match:
        return
    if token:
        why = "resourceVersionMatch is forbidden when continue is provided"
    elif not asked:
        why = "resourceVersionMatch is forbidden unless resourceVersion is provided"
    elif match == "Exact" and asked == "0":
        why = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
    elif match not in ("Exact", "NotOlderThan"):
        field, why = "resourceVersionMatch", 'supported values: "Exact", "NotOlderThan", ""'
        raise _invalid_options(field, "FieldValueNotSupported", f'Unsupported value: "{match}": {why}')
    if why:
        raise _invalid_options("resourceVersionMatch", "FieldValueForbidden", f"Forbidden: {why}")


def _invalid_options(field: str, reason: str, body: str) -> Failure:
    causes = [{"reason": reason, "message": body, "field": field}]
    details = {"group": "meta.k8s.io", "kind": "ListOptions", "causes": causes}
    return Failure(422, "Invalid", f'ListOptions.meta.k8s.io "" is invalid: {field}: {body}', details)


def watched_version(text: str) -> int:
    """The version after which a watch begins; 0: with current objects. Raises Failure (500)."""
    if not text:
        return 0
    try:
        return parse_version(text)
    except Failure as failure:
        raise Failure(500, "", failure.message.removeprefix("invalid resource version: ")) from None


def parse_version(text: str) -> int:
    """A resource version as a number. Raises Failure (400)."""
    if not text.isascii() or not text.isdigit():
        body = f'Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise Failure(400, "BadRequest", f"invalid resource version: resourceVersion: {body}")
    return int(text)


def _number(query: dict[str, str], name: str) -> int:
    text = query.get(name, "")
    try:
        number = int(text) if text else 0
    except ValueError:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None
    if not -(2**63) <= number < 2**63:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": value out of range')
    return number


def _token(after: str, version: int) -> str:
    content = msgspec.json.encode({"v": _TOKEN_VERSION, "rv": version, "start": after + "\0"})
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _read_token(token: str) -> tuple[int, str]:
    try:
        content: Any = msgspec.json.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        if content["v"] != _TOKEN_VERSION:
            raise ValueError
        return int(content["rv"]), str(content["start"]).rstrip("\0")
    except (ValueError, KeyError, TypeError, msgspec.DecodeError):
        raise bad_request("invalid continue token: continue key is not valid") from None
