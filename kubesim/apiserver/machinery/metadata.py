"""Metadata: defaults and validation of the `metadata` of any object, on creation and update."""

from __future__ import annotations

import random
import re
import uuid
from datetime import UTC, datetime
from typing import Any

from kubesim import kinds
from kubesim.apiserver.machinery.failures import (
    FIELD_IMMUTABLE,
    Failure,
    Problem,
    bad_request,
    forbidden_field,
    missing,
    wrong,
)
from kubesim.clock import Clock
from kubesim.kinds import Json, Kind

_LABEL_FORMAT = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN_FORMAT = rf"{_LABEL_FORMAT}(\.{_LABEL_FORMAT})*"
_LABEL = re.compile(_LABEL_FORMAT)
_SUBDOMAIN = re.compile(_SUBDOMAIN_FORMAT)
_NOT_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    f"an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL_FORMAT}')"
)
_NOT_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN_FORMAT}')"
)
_NAME_FORMAT = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE_FORMAT = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
_NAME = re.compile(_NAME_FORMAT)
_VALUE = re.compile(_VALUE_FORMAT)
_WORDS = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)
_NOT_NAME = f"{_WORDS} (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_NAME_FORMAT}')"
_NOT_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    f"'{_VALUE_FORMAT}')"
)
_NAMED_BY_LABEL = (kinds.NAMESPACE, kinds.SERVICE)

_STANDARD_FINALIZERS = ("orphan", "foregroundDeletion", "kubernetes")
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_LONGEST_PREFIX = 58
_ANNOTATIONS_LIMIT = 256 * 1024
_OF_THE_SERVER = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink")
_KEPT = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
_IMMUTABLE = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


def generated(prefix: str, rng: random.Random) -> str:
    return prefix[:_LONGEST_PREFIX] + "".join(rng.choices(_ALPHABET, k=5))


def new_uid(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def of_new(kind: Kind, obj: Json, namespace: str, clock: Clock, rng: random.Random) -> Json:
    """The metadata of a new object, with name, namespace, UID and time. Raises Failure (400)."""
    given = shaped(kind, obj)
    if given.get("resourceVersion"):
        raise Failure(500, "", "resourceVersion should not be set on objects to be created")
    metadata = {key: value for key, value in given.items() if key not in _OF_THE_SERVER and key != "resourceVersion"}
    place(kind, metadata, namespace)
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = generated(metadata["generateName"], rng)
    metadata.pop("generation", None)
    first: Json = {key: metadata.pop(key) for key in ("name", "generateName", "namespace") if key in metadata}
    return {**first, "uid": new_uid(rng), "creationTimestamp": clock.stamp(), **metadata}


def place(kind: Kind, metadata: Json, namespace: str) -> None:
    """Sets the namespace to the request's. Raises Failure (400) if it is another one."""
    if kind.namespaced:
        if metadata.setdefault("namespace", namespace) != namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    else:
        metadata.pop("namespace", None)


def shaped(kind: Kind, obj: Json) -> Json:
    """The metadata without null or empty values. Raises Failure (400) if its shape is wrong."""
    metadata = obj.get("metadata")
    if metadata is None:
        return {}
    if not isinstance(metadata, dict):
        raise _not_readable(kind, metadata, "ObjectMeta", "metadata")
    kept = {key: value for key, value in metadata.items() if value is not None and value != {} and value != []}
    kept.pop("managedFields", None)
    for key in ("labels", "annotations"):
        texts = kept.get(key)
        if texts is None:
            continue
        if not isinstance(texts, dict):
            raise _not_readable(kind, texts, "map[string]string", f"metadata.{key}")
        for value in texts.values():
            if not isinstance(value, str):
                if value is None:
                    kept[key] = {name: "" if each is None else each for name, each in texts.items()}
                    continue
                raise _not_readable(kind, value, "string", f"metadata.{key}")
    for key in ("creationTimestamp", "deletionTimestamp"):
        if isinstance(kept.get(key), str):
            kept[key] = _in_utc(kept[key])
    for key in ("name", "namespace", "generateName", "uid", "resourceVersion"):
        if key in kept and not isinstance(kept[key], str):
            raise _not_readable(kind, kept[key], "string", f"metadata.{key}")
        if kept.get(key) == "":
            del kept[key]
    return kept


def _in_utc(stamp: str) -> str:
    """The same time as it is stored, in UTC; a text that is no time stays unchanged."""
    try:
        return datetime.fromisoformat(stamp).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        return stamp


def carried_over(metadata: Json, old: Json) -> Json:
    """The metadata of an update, with omitted server-set fields copied from `old`."""
    kept = {key: old[key] for key in _KEPT if key in old and not metadata.get(key)}
    return {**metadata, **kept, "generation": old["generation"]} if "generation" in old else {**metadata, **kept}


def problems_of_new(kind: Kind, metadata: Json) -> list[Problem]:
    problems: list[Problem] = []
    name, prefix = metadata.get("name"), metadata.get("generateName") or ""
    if prefix:
        # A generateName may end in a dash, because a suffix follows.
        shown = prefix[:-1] + "a" if prefix.endswith("-") and len(prefix) > 1 else prefix
        problems += [wrong("metadata.generateName", prefix, why) for why in _name_faults(kind, shown)]
    if not name:
        problems.append(missing("metadata.name", "name or generateName is required"))
    else:
        problems += [wrong("metadata.name", name, why) for why in _name_faults(kind, name)]
    problems += _problems_of_both(metadata)
    for at, finalizer in enumerate(metadata.get("finalizers") or ()):
        faults = qualified_name_faults(finalizer)
        problems += [wrong("metadata.finalizers", finalizer, why) for why in faults]
        if not faults and not kind.is_custom and "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            why = "name is neither a standard finalizer name nor is it fully qualified"
            problems.append(wrong(f"metadata.finalizers[{at}]", finalizer, why))
    return problems


def problems_of_update(new: Json, old: Json) -> list[Problem]:
    problems: list[Problem] = []
    if old.get("deletionTimestamp"):
        added = sorted(set(new.get("finalizers") or ()) - set(old.get("finalizers") or ()))
        if added:
            shown = "{" + ", ".join(f'"{each}"' for each in added) + "}"
            why = "no new finalizers can be added if the object is being deleted, found new finalizers []string"
            problems.append(forbidden_field("metadata.finalizers", why + shown))
    problems += [
        wrong(f"metadata.{key}", new.get(key), FIELD_IMMUTABLE) for key in _IMMUTABLE if new.get(key) != old.get(key)
    ]
    return problems + _problems_of_both(new)


def label_faults(value: str) -> list[str]:
    """Why the value is no DNS label; empty if it is one."""
    faults = ["must be no more than 63 bytes"] if len(value) > 63 else []
    if not _LABEL.fullmatch(value):
        faults.append("must not contain dots" if _SUBDOMAIN.fullmatch(value) else _NOT_LABEL)
    return faults


def subdomain_faults(value: str) -> list[str]:
    """Why the value is no DNS subdomain; empty if it is one."""
    faults = ["must be no more than 253 bytes"] if len(value) > 253 else []
    return faults if _SUBDOMAIN.fullmatch(value) else [*faults, _NOT_SUBDOMAIN]


def qualified_name_faults(key: str) -> list[str]:
    """Why this is no valid key of a label, annotation or resource."""
    prefix, slash, name = key.rpartition("/")
    faults: list[str] = []
    if slash:
        if "/" in prefix:
            example = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            return [f"a valid label key {_NOT_NAME} {example}"]
        if not prefix:
            faults.append("prefix part must be non-empty")
        else:
            faults += [f"prefix part {each}" for each in subdomain_faults(prefix)]
    if not name:
        faults.append("name part must be non-empty")
    elif len(name) > 63:
        faults.append("name part must be no more than 63 bytes")
    if not _NAME.fullmatch(name):
        faults.append(f"name part {_NOT_NAME}")
    return faults


def label_value_faults(value: str) -> list[str]:
    """Why this is no valid label value."""
    faults = ["must be no more than 63 bytes"] if len(value) > 63 else []
    return faults if _VALUE.fullmatch(value) else [*faults, _NOT_VALUE]


def label_problems(labels: Json, where: str) -> list[Problem]:
    problems: list[Problem] = []
    for key, value in labels.items():
        problems += [wrong(where, key, why) for why in qualified_name_faults(key)]
        problems += [wrong(where, value, why) for why in label_value_faults(value)]
    return problems


def _name_faults(kind: Kind, name: str) -> list[str]:
    if kind.is_custom or kind not in _NAMED_BY_LABEL:
        return subdomain_faults(name)
    return label_faults(name)


def _problems_of_both(metadata: Json) -> list[Problem]:
    problems = label_problems(metadata.get("labels") or {}, "metadata.labels")
    annotations = metadata.get("annotations") or {}
    for key in annotations:
        problems += [wrong("metadata.annotations", key, why) for why in qualified_name_faults(key.lower())]
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > _ANNOTATIONS_LIMIT:
        body = f"Too long: may not be more than {_ANNOTATIONS_LIMIT} bytes"
        problems.append(Problem("FieldValueTooLong", "metadata.annotations", body))
    return problems + _owner_problems(metadata.get("ownerReferences") or [])


def _owner_problems(references: list[Json]) -> list[Problem]:
    where = "metadata.ownerReferences"
    problems: list[Problem] = []
    controllers = [each for each in references if each.get("controller")]
    for each in references:
        for key, why in (
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ):
            if not each.get(key):
                problems.append(wrong(f"{where}.{key}", each.get(key) or "", why))
    if len(controllers) > 1:
        one, other = (f"{each.get('kind')}/{each.get('name')}" for each in controllers[:2])
        why = 'Only one reference can have Controller set to true. Found "true" in references for'
        problems.append(wrong(where, references, f"{why} {one} and {other}"))
    return problems


def _not_readable(kind: Kind, value: Any, wanted: str, where: str) -> Failure:
    return bad_request(
        f'{kind.name} in version "{kind.version}" cannot be handled as a {kind.name}: json: cannot unmarshal '
        f"{go_kind(value)} into Go struct field ObjectMeta.{where} of type {wanted}"
    )


def go_kind(value: object) -> str:
    """The name of the value's type in Go's JSON decoder."""
    match value:
        case bool():
            return "bool"
        case str():
            return "string"
        case int() | float():
            return "number"
        case dict():
            return "object"
        case list():
            return "array"
    return "null"


def go_text(value: object) -> str:
    """The value as Go prints it (`%v`)."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return str(value).lower()
        case dict():
            return f"map[{' '.join(f'{key}:{go_text(value[key])}' for key in sorted(value))}]"
        case list():
            return f"[{' '.join(map(go_text, value))}]"
    return str(value)
