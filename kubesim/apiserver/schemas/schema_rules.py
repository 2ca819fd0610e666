"""Schema rules: finds the `x-kubernetes-validations` of a structural schema that an object breaks.

Rules are compiled once for a schema. A rule that cannot be evaluated here, or costs too much, is refused with the
definition. A rule about an unchanged part of an update is not evaluated again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from kubesim.apiserver import cel
from kubesim.apiserver.cel.functions import pattern
from kubesim.apiserver.cel.types import BOOL, TEXT, OptionalOf, Type
from kubesim.apiserver.machinery.failures import Problem, forbidden_field, missing, wrong
from kubesim.apiserver.schemas.schema_budget import Budget
from kubesim.apiserver.schemas.schema_extents import extent, most_elements, most_in_request
from kubesim.apiserver.schemas.schema_types import cel_type
from kubesim.apiserver.schemas.schema_values import NOTHING, Schema
from kubesim.kinds import Json

_NOT_CHECKED = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete "
    "validation"
)
_BLOCKING = (
    "FieldValueNotSupported",
    "FieldValueRequired",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "FieldValueTypeInvalid",
)
_COMBINED = ("allOf", "anyOf", "oneOf", "not")
_ITSELF_OR_A_REASON = ("FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate")


@dataclass(frozen=True)
class Rule:
    """A compiled rule. `message`: its fixed error text; `said`: the messageExpression, if any."""

    text: str
    holds: cel.Program
    message: str
    said: cel.Program | None
    where: str
    reason: str
    transition: bool
    optional_old: bool


@dataclass
class Rules:
    """The rules of a schema and of its parts. `keys`: the fields that identify list items."""

    own: tuple[Rule, ...] = ()
    properties: dict[str, Rules] = field(default_factory=dict)
    others: Rules | None = None
    items: Rules | None = None
    keys: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.own or self.properties or self.others or self.items)


def ready(schema: Schema, where: str = "", *, unchanged: bool = False) -> tuple[Rules, list[Problem]]:
    """The rules of a whole schema, and the errors in them and in its patterns.

    `unchanged`: the schema was accepted before, when a rule may have been cheaper.
    """
    rules, problems = _ready(json.dumps(schema), where, unchanged)
    return rules, list(problems)


@lru_cache(maxsize=64)
def _ready(written: str, where: str, unchanged: bool) -> tuple[Rules, tuple[Problem, ...]]:
    """Cached, as every cluster gets the same few definitions, and made rules never change."""
    reading = _Reading(Budget(unchanged))
    rules = reading.rules(json.loads(written), _Place(where, root=True))
    return rules, (*reading.problems, *reading.budget.overdrawn(where))


def forget() -> None:
    """Clears the cache, as in a new process: all schemas are compiled again."""
    _ready.cache_clear()


def broken_rules(rules: Rules, new: Json, old: Json | None, problems: list[Problem]) -> list[Problem]:
    if not rules:
        return []
    if any(each.type in _BLOCKING for each in problems):
        return [Problem("FieldValueInvalid", "<nil>", f"Invalid value: null: {_NOT_CHECKED}")]
    return list(_broken_rules(rules, new, NOTHING if old is None else old, ""))


# -- compilation -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Place:
    """A part of a schema.

    `known_again`: an update's old value can be found. `times`: how often it can occur in one object; None if unlimited.
    """

    where: str
    root: bool = False
    known_again: bool = True
    times: int | None = 1

    def within(self, name: str, schema: Schema) -> _Place:
        """The place of a part of this schema."""
        known_again = self.known_again and (name != "items" or _is_map(schema))
        most = most_elements(schema)
        times = None if self.times is None or most is None else self.times * most
        return _Place(f"{self.where}.{name}", known_again=known_again, times=times)


@dataclass(frozen=True)
class _About:
    """The subject of the rules of one part."""

    type: Type
    extent: cel.Extent
    times: int
    place: _Place


@dataclass
class _Reading:
    budget: Budget
    problems: list[Problem] = field(default_factory=list)

    def rules(self, schema: Any, place: _Place) -> Rules:
        if not isinstance(schema, Mapping):
            return Rules()
        self._check(schema, place.where)
        rules = Rules(keys=tuple(schema.get("x-kubernetes-list-map-keys") or ()) if _is_map(schema) else ())
        for name, part in (schema.get("properties") or {}).items():
            inner = self.rules(part, place.within(f"properties[{name}]", schema))
            if inner:
                rules.properties[name] = inner
        others = schema.get("additionalProperties")
        rules.others = self.rules(others, place.within("additionalProperties", schema)) or None
        rules.items = self.rules(schema.get("items"), place.within("items", schema)) or None
        rules.own = tuple(self._own(schema, place))
        return rules

    def _check(self, schema: Schema, where: str) -> None:
        if text := schema.get("pattern"):
            try:
                pattern(text)
            except cel.Refused as error:
                self.problems.append(wrong(f"{where}.pattern", text, f"must be a valid regular expression: {error}"))
        for key in _COMBINED:
            if _mentions_rules(schema.get(key)):
                self.problems.append(forbidden_field(f"{where}.{key}", "it must not have validation rules"))

    def _own(self, schema: Schema, place: _Place) -> Iterator[Rule]:
        given = schema.get("x-kubernetes-validations") or ()
        if not given:
            return
        root = place.root or bool(schema.get("x-kubernetes-embedded-resource"))
        of_type, size = cel_type(schema, root=root), extent(schema, root=root)
        for at, rule in enumerate(given):
            where = f"{place.where}.x-kubernetes-validations[{at}]"
            if of_type is None or size is None:
                why = "rules need a type that they are about"
                self.problems.append(wrong(f"{where}.rule", rule.get("rule"), why))
                continue
            times = most_in_request(size) if place.times is None else place.times
            found = self._rule(rule, where, _About(of_type, size, times, place))
            if found is not None:
                yield found

    def _rule(self, rule: Schema, where: str, about: _About) -> Rule | None:
        text = rule.get("rule")
        if not isinstance(text, str) or not text.strip():
            self.problems.append(missing(f"{where}.rule", "rule is not specified"))
            return None
        optional = rule.get("optionalOldSelf") is True
        names = {"self": about.type, "oldSelf": OptionalOf(about.type) if optional else about.type}
        holds = self._compiled(text, names, BOOL, f"{where}.rule")
        expression = rule.get("messageExpression")
        said = self._compiled(expression, names, TEXT, f"{where}.messageExpression") if expression else None
        reason = rule.get("reason") or "FieldValueInvalid"
        if reason not in _ITSELF_OR_A_REASON:
            why = f"supported values: {', '.join(_ITSELF_OR_A_REASON)}"
            self.problems.append(wrong(f"{where}.reason", reason, why))
        if holds is None:
            return None
        self.problems += self.budget.spend(holds.cost(about.extent) * about.times, f"{where}.rule", "rule")
        if said is not None:
            cost = said.cost(about.extent)
            self.problems += self.budget.spend(cost, f"{where}.messageExpression", "messageExpression")
        transition = "oldSelf" in holds.uses
        if transition and not about.place.known_again:
            why = "oldSelf cannot be used on the uncorrelatable portion of the schema"
            self.problems.append(wrong(f"{where}.rule", text, why))
        message = rule.get("message") or f"failed rule: {text.strip()}"
        field_path = rule.get("fieldPath") or ""
        return Rule(text, holds, message, said, field_path, reason, transition, optional)

    def _compiled(self, text: str, names: Mapping[str, Type], wanted: Type, where: str) -> cel.Program | None:
        try:
            program = cel.compiled(text, names)
        except cel.Refused as error:
            self.problems.append(wrong(where, text, f"compilation failed: {error}"))
            return None
        if program.type != wanted:
            self.problems.append(wrong(where, text, f"must evaluate to a {wanted}"))
            return None
        return program


def _is_map(schema: Schema) -> bool:
    return schema.get("x-kubernetes-list-type") == "map"


def _mentions_rules(part: Any) -> bool:
    if isinstance(part, Mapping):
        return "x-kubernetes-validations" in part or any(map(_mentions_rules, part.values()))
    return isinstance(part, list) and any(map(_mentions_rules, part))


# -- evaluation --------------------------------------------------------------------------------------------------------


def _broken_rules(rules: Rules, value: Any, old: Any, path: str) -> Iterator[Problem]:
    for rule in rules.own:
        yield from _broken_rule(rule, value, old, path)
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        for key, each in value.items():
            if key in rules.properties:
                where = f"{path}.{key}" if path else key
                yield from _broken_rules(rules.properties[key], each, before.get(key, NOTHING), where)
            elif rules.others is not None:
                yield from _broken_rules(rules.others, each, before.get(key, NOTHING), f"{path}[{key}]")
    elif isinstance(value, list) and rules.items is not None:
        for at, each in enumerate(value):
            former = _known_again(rules, each, old)
            yield from _broken_rules(rules.items, each, former, f"{path}[{at}]")


def _known_again(rules: Rules, item: Any, old: Any) -> Any:
    """The old item of the list with the same keys as `item`."""
    if not rules.keys or not isinstance(old, list) or not isinstance(item, dict):
        return NOTHING
    wanted = [item.get(key) for key in rules.keys]
    return next(
        (one for one in old if isinstance(one, dict) and [one.get(key) for key in rules.keys] == wanted), NOTHING
    )


def _broken_rule(rule: Rule, value: Any, old: Any, path: str) -> Iterator[Problem]:
    names: dict[str, Any] = {"self": value}
    if rule.transition:
        if rule.optional_old:
            names["oldSelf"] = cel.Optional() if old is NOTHING else cel.Optional(old, there=True)
        elif old is NOTHING:
            return
        else:
            names["oldSelf"] = old
    elif old is not NOTHING and value == old:
        return
    try:
        if rule.holds(names):
            return
    except cel.Failed as error:
        yield _said("FieldValueInvalid", path or "<nil>", value, _why(str(error), rule))
        return
    said = rule.message
    if rule.said is not None:
        with suppress(cel.Failed):
            said = str(rule.said(names))
    yield _said(rule.reason, (path + rule.where).lstrip(".") or "<nil>", value, said)


def _why(failed: str, rule: Rule) -> str:
    if failed.startswith("no such overload"):
        why = "call arguments did not match a supported operator, function or macro signature for rule"
        return f"'{failed}': {why}: {rule.message}"
    return f"{failed} evaluating rule: {rule.message}"


def _said(reason: str, where: str, value: Any, why: str) -> Problem:
    """The error of a broken rule; the message omits the value of objects and lists."""
    match reason:
        case "FieldValueForbidden":
            return Problem(reason, where, f"Forbidden: {why}")
        case "FieldValueRequired":
            return Problem(reason, where, f"Required value: {why}")
    problem = wrong(where, value, why)
    body = f"Invalid value: {why}" if isinstance(value, dict | list) else problem.body
    return Problem(reason, where, body.replace("Invalid", "Duplicate", 1) if reason == "FieldValueDuplicate" else body)
