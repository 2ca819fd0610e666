"""Selectors: predicates on objects, from the texts of `labelSelector` and `fieldSelector`.

They hold the grammar of label selectors and the selectable fields of each kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache

from kubesim import kinds
from kubesim.apiserver.machinery.failures import Failure, bad_request
from kubesim.kinds import Json, Kind

Selector = Callable[[Json], bool]

_TOKEN = re.compile(r"\s*(!=|==|=|!|<|>|\(|\)|,|[^\s!=<>(),]+)")
_KEY = re.compile(r"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_WORDS = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)
_SIGNS = ("=", "==", "!=", "!", "<", ">", "(", ")")
_OPERATORS = ("=", "==", "!=", "in", "notin", "<", ">")


def label_selector(text: str) -> Selector | None:
    """A predicate for the text; None if the text is empty. Raises Failure (400)."""
    if not text.strip():
        return None
    try:
        requirements = _requirements(text)
    except _Malformed as error:
        raise bad_request(str(error)) from None

    def matches(obj: Json) -> bool:
        labels = obj["metadata"].get("labels") or {}
        return all(requirement(labels) for requirement in requirements)

    return matches


def of_label_selector(selector: Mapping[str, object] | None) -> Callable[[Mapping[str, str]], bool]:
    """A predicate on labels for a LabelSelector object; None as selector matches nothing."""
    if selector is None:
        return lambda labels: False
    wanted: Json = selector.get("matchLabels") or {}  # type: ignore[assignment]
    expressions: list[Json] = selector.get("matchExpressions") or []  # type: ignore[assignment]
    requirements = [_requirement(key, "=", (value,)) for key, value in wanted.items()]
    for each in expressions:
        operator = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}[each["operator"]]
        requirements.append(_requirement(each["key"], operator, tuple(each.get("values") or ())))
    return lambda labels: all(requirement(labels) for requirement in requirements)


class _Malformed(ValueError):
    """The selector text is invalid. `where`: the start of the message."""

    def __init__(self, why: str, where: str = "unable to parse requirement: ") -> None:
        super().__init__(where + why)


_Requirement = Callable[[Mapping[str, str]], bool]


@lru_cache(maxsize=256)
def _requirements(text: str) -> tuple[_Requirement, ...]:
    tokens = _tokens(text)
    found: list[_Requirement] = []
    while tokens:
        found.append(_next_requirement(tokens))
        if tokens:
            if tokens[0] != ",":
                raise _Malformed(f"found '{tokens[0]}', expected: ',' or 'end of string'", "")
            tokens.pop(0)
            if not tokens:
                raise _Malformed("found '', expected: identifier after ','", "")
    return tuple(found)


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    position = 0
    text = text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _Malformed(f"found '{text[position:]}'")
        tokens.append(match.group(1))
        position = match.end()
    return tokens


def _next_requirement(tokens: list[str]) -> _Requirement:
    negated = tokens[0] == "!"
    if negated:
        tokens.pop(0)
    key = tokens.pop(0) if tokens else ""
    if not _KEY.fullmatch(key):
        why = f"name part {_WORDS} (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
        raise _Malformed(f"<nil>: Invalid value: \"{key}\": {why}'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')")
    if negated:
        return _requirement(key, "!", ())
    if not tokens or tokens[0] == ",":
        return _requirement(key, "exists", ())
    operator = tokens.pop(0)
    if operator not in _OPERATORS:
        raise _Malformed(f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt")
    if operator in ("in", "notin"):
        return _requirement(key, operator, _values(key, tokens))
    value = "" if not tokens or tokens[0] == "," else tokens.pop(0)
    if value in _SIGNS:
        raise _Malformed(f"found '{value}', expected: identifier")
    return _requirement(key, operator, (_checked(key, value),))


def _values(key: str, tokens: list[str]) -> tuple[str, ...]:
    opening = tokens.pop(0) if tokens else ""
    if opening != "(":
        raise _Malformed(f"found '{opening}' expected: '('")
    values: list[str] = []
    expecting = True
    while tokens:
        token = tokens.pop(0)
        if token == ")":
            return (*values, "") if expecting else tuple(values)
        if token == ",":
            if expecting:
                values.append("")
            expecting = True
        else:
            values.append(_checked(key, token))
            expecting = False
    raise _Malformed("found '', expected: ',' or ')'")


def _checked(key: str, value: str) -> str:
    if not _VALUE.fullmatch(value):
        why = f"a valid label must be an empty string or {_WORDS.removeprefix('must ')}"
        example = "(e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is"
        shape = "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
        raise _Malformed(f'values[0][{key}]: Invalid value: "{value}": {why} {example} {shape}')
    return value


def _requirement(key: str, operator: str, values: tuple[str, ...]) -> _Requirement:
    accepted = frozenset(values)
    match operator:
        case "=" | "==" | "in":
            return lambda labels: labels.get(key) in accepted if key in labels else False
        case "!=" | "notin":
            return lambda labels: key not in labels or labels[key] not in accepted
        case "exists":
            return lambda labels: key in labels
        case "!":
            return lambda labels: key not in labels
    above = operator == ">"

    def compares(labels: Mapping[str, str]) -> bool:
        try:
            mine, limit = int(labels[key]), int(values[0])
        except (KeyError, ValueError):
            return False
        return mine > limit if above else mine < limit

    return compares


# -- fields ------------------------------------------------------------------------------------------------------------

_ANY = ("metadata.name", "metadata.namespace")
_WITHOUT_NAMESPACE = (kinds.NODE, kinds.NAMESPACE)
_INVOLVED = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_EVENT_FIELDS = ("reason", "reportingComponent", "source", "type")
_FIELDS: dict[Kind, tuple[str, ...]] = {
    kinds.POD: (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    kinds.NODE: ("spec.unschedulable",),
    kinds.NAMESPACE: ("status.phase",),
    kinds.SECRET: ("type",),
    kinds.JOB: ("status.successful",),
    kinds.EVENT: (*(f"involvedObject.{each}" for each in _INVOLVED), *_EVENT_FIELDS),
    kinds.EVENTS: (
        *(f"regarding.{each}" for each in _INVOLVED), *(f"involvedObject.{each}" for each in _INVOLVED),
        "reportingController", *_EVENT_FIELDS,
    ),
}  # fmt: skip


def field_selector(kind: Kind, text: str) -> Selector | None:
    """A predicate for the text; None if empty. Raises Failure (400) for unsupported fields."""
    terms = [term for term in re.split(r"(?<!\\),", text) if term]
    if not terms:
        return None
    checks = [_field_check(kind, term) for term in terms]
    if len(checks) == 1:
        return checks[0]
    return lambda obj: all(check(obj) for check in checks)


def _field_check(kind: Kind, term: str) -> Selector:
    match = re.fullmatch(r"((?:[^=!\\]|\\.)*?)(!=|==|=)(.*)", term)
    if match is None:
        raise bad_request(f"invalid selector: '{term}'; can't understand '{term}'")
    name, operator, raw = match.groups()
    value = re.sub(r"\\([\\,=])", r"\1", raw)
    if name not in _ANY and name not in _FIELDS.get(kind, ()):
        raise _not_supported(kind, name)
    if name == "metadata.namespace" and (kind in _WITHOUT_NAMESPACE or (kind.is_custom and not kind.namespaced)):
        raise _not_supported(kind, name)
    read = _reader(kind, name)
    if operator == "!=":
        return lambda obj: read(obj) != value
    return lambda obj: read(obj) == value


def _not_supported(kind: Kind, name: str) -> Failure:
    if kind.is_custom or kind in _FIELDS:
        return bad_request(f"field label not supported: {name}")
    return bad_request(f'"{name}" is not a known field selector: only "metadata.name", "metadata.namespace"')


def _reader(kind: Kind, name: str) -> Callable[[Json], str]:
    """Reads a field as the API server compares it: a text, empty if the field is missing."""
    if kind in (kinds.EVENT, kinds.EVENTS):
        name = name.replace("regarding.", "involvedObject.").replace("reportingController", "reportingComponent")
        if name == "source":
            return lambda obj: _text((obj.get("source") or {}).get("component") or obj.get("reportingComponent"))
    if name == "spec.unschedulable":
        return lambda obj: _text(bool((obj.get("spec") or {}).get("unschedulable")))
    if name == "status.podIP":
        return lambda obj: _text((obj.get("status") or {}).get("podIP"))
    if name == "status.successful":
        return lambda obj: _text((obj.get("status") or {}).get("succeeded") or 0)
    outer, _, inner = name.partition(".")
    if not inner:
        return lambda obj: _text(obj.get(outer))
    return lambda obj: _text((obj.get(outer) or {}).get(inner))


def _text(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
