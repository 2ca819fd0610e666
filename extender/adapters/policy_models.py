"""Policy models: what the spec of an EscherPolicy may contain, as pydantic models and JSON schema.

They come from the fields of `core.policies.policy_types` and their metadata, in both spellings: HTTP writes `max_skew`,
the custom resource `maxSkew`. Each error names its field and its value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, asdict, dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Annotated, Any, get_args, get_type_hints

import pydantic
from pydantic import BaseModel, ConfigDict, StrictBool, StrictInt, StrictStr, ValidationError, create_model
from pydantic import Field as Said

from extender.adapters.http.problems import complaint, dotted, quoted
from extender.adapters.spelling import camel
from extender.core.policies.policy_types import (
    EXAMPLES,
    TYPES,
    Hosted,
    Parameters,
    PodSelector,
    PolicyInForce,
    PolicySpec,
)
from extender.kube.label_match import LabelRequirement, Selector

MOST_REQUIREMENTS = 64
MOST_VALUES = 64
ASKED = frozenset(name for name, each in TYPES.items() if each in get_args(Hosted))
"""The types that select no pods, and that applications call."""
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_PREFIX_LIMIT, _NAME_LIMIT = 253, 63

_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


class Spelling(Enum):
    """How field names are written."""

    HTTP = "snake"
    KUBERNETES = "camel"

    def of(self, name: str) -> str:
        """Returns the field's name in this spelling."""
        return camel(name) if self is Spelling.KUBERNETES else name


@dataclass(frozen=True, slots=True)
class Fault:
    """One error. `field`: where, such as `parameters.max_skew`; `detail`: what, for people."""

    field: str
    detail: str


class BadPolicySpec(ValueError):
    """A spec that cannot be accepted. `str()` gives the first of its faults."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__(faults[0].detail)
        self.faults = tuple(faults)


def in_force(spec: PolicySpec, spelling: Spelling = Spelling.HTTP) -> PolicyInForce:
    """Returns the policy in force for this spec. Raises BadPolicySpec, with names so spelt."""
    faults: list[Fault] = []
    parameters: Parameters | None = None
    try:
        parameters = _parameters(spec.type, spec.parameters, spelling)
    except BadPolicySpec as error:
        faults += error.faults
    if spec.selector is not None:
        faults += _faults_of(spec.selector, spelling)
        if spec.type in ASKED:
            faults.append(Fault("selector", f"selector: type {spec.type} is asked and selects no pods; remove it"))
    if parameters is None or faults:
        raise BadPolicySpec(faults)
    return PolicyInForce(parameters, _selector(spec.selector))


# -- parameters --------------------------------------------------------------------------------------------------


def _parameters(kind: str, said: Mapping[str, Any], spelling: Spelling) -> Parameters:
    if kind not in TYPES:
        raise BadPolicySpec([Fault("type", f"type: {quoted(kind)} does not exist; write one of {', '.join(TYPES)}")])
    spelt = {spelling.of(name): value for name, value in said.items()}
    try:
        read = _model(kind, spelling).model_validate(spelt)
    except ValidationError as error:
        raise BadPolicySpec([_fault(kind, each, spelling) for each in error.errors()[:20]]) from None
    make: Callable[..., Parameters] = TYPES[kind]
    return make(**_values(TYPES[kind], read))


def _values(kind: type[Any], read: BaseModel) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {each.name: _value(hints[each.name], getattr(read, each.name)) for each in fields(kind)}


def _value(hint: Any, said: Any) -> Any:
    if not isinstance(said, list):
        return said
    item = get_args(hint)[0]
    return tuple(item(**_values(item, each)) if isinstance(each, BaseModel) else each for each in said)


def _fault(kind: str, error: Any, spelling: Spelling) -> Fault:
    field = dotted(("parameters", *error["loc"]))
    if error["type"] == "extra_forbidden" and len(error["loc"]) == 1:
        known = [spelling.of(each.name) for each in fields(TYPES[kind])]
        may = f"it may have {', '.join(known)}" if known else "it has none"
        return Fault(field, f"{field}: type {kind} has no such parameter; {may}")
    return Fault(field, complaint(field, error))


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


def _model(kind: str, spelling: Spelling) -> type[BaseModel]:
    made: Any = TYPES[kind]
    return _model_of(made, spelling)


@cache
def _model_of(kind: type[Any], spelling: Spelling) -> type[BaseModel]:
    hints = get_type_hints(kind)
    members: dict[str, Any] = {
        each.name: (_type(hints[each.name], each.metadata, spelling), _said(each, spelling.of(each.name)))
        for each in fields(kind)
    }
    return create_model(kind.__name__, __base__=_Strict, __doc__=_words(kind), **members)


def _type(hint: Any, said: Mapping[str, Any], spelling: Spelling) -> Any:
    """Returns the annotation that makes pydantic read a field of this type within its limits."""
    if args := get_args(hint):
        item = _text(said) if args[0] is str else _model_of(args[0], spelling)
        return Annotated[list[item], Said(**_only(said, min_items="min_length", max_items="max_length"))]  # type: ignore[valid-type]
    if hint is str:
        return _text(said)
    return StrictBool if hint is bool else Annotated[StrictInt, Said(**_only(said, ge="ge", le="le"))]


def _text(said: Mapping[str, Any]) -> Any:
    return Annotated[StrictStr, Said(**_only(said, pattern="pattern", max_length="max_length"))]


def _only(said: Mapping[str, Any], **names: str) -> dict[str, Any]:
    return {other: said[name] for name, other in names.items() if name in said}


def _said(field: Field[Any], spelt: str) -> Any:
    default = ... if field.default is MISSING else list(field.default) if field.default == () else field.default
    return pydantic.Field(default, alias=spelt, description=field.metadata["description"])


def required(kind: str) -> list[str]:
    """Returns the names of the parameters that a policy of this type must have."""
    return [each.name for each in fields(TYPES[kind]) if each.default is MISSING]


# -- descriptions of a type, for people and programs -------------------------------------------------------------


def summary(kind: str) -> str:
    """Returns what the type does, in one or two sentences."""
    return _words(TYPES[kind])


def _words(kind: type[Any]) -> str:
    return " ".join((kind.__doc__ or "").split())


@cache
def schema(kind: str) -> Mapping[str, Any]:
    """Returns the JSON schema of the type's parameters, in HTTP spelling."""
    said = _model(kind, Spelling.HTTP).model_json_schema()
    inlined: dict[str, Any] = _inlined(said, said.pop("$defs", {}))
    return inlined


def _inlined(said: Any, definitions: Mapping[str, Any]) -> Any:
    """Returns the schema with its references replaced, so that it is valid in any document."""
    if isinstance(said, list):
        return [_inlined(each, definitions) for each in said]
    if not isinstance(said, dict):
        return said
    if "$ref" in said:
        return _inlined(definitions[said["$ref"].rpartition("/")[2]], definitions)
    return {name: _inlined(each, definitions) for name, each in said.items()}


def example(kind: str) -> Mapping[str, Any]:
    """Returns parameters of this type, as a beginner may write them."""
    said: dict[str, Any] = _brief(EXAMPLES[kind])
    return said


def _brief(value: Any) -> Any:
    """Returns the value as JSON, without fields that have their default."""
    if isinstance(value, tuple):
        return [_brief(each) for each in value]
    if not is_dataclass(value):
        return value
    said = {each.name: getattr(value, each.name) for each in fields(value) if getattr(value, each.name) != each.default}
    return {name: _brief(each) for name, each in said.items()}


def shown(parameters: Parameters) -> dict[str, Any]:
    """Returns all the parameters, in HTTP spelling."""
    said: dict[str, Any] = _json(asdict(parameters))
    return said


def _json(value: object) -> Any:
    if isinstance(value, dict):
        return {name: _json(each) for name, each in value.items()}
    return [_json(each) for each in value] if isinstance(value, tuple) else value


# -- selectors ---------------------------------------------------------------------------------------------------


def _selector(said: PodSelector | None) -> Selector:
    if said is None:
        return None
    labels = (LabelRequirement(key, "In", (value,)) for key, value in sorted(said.match_labels.items()))
    return (*labels, *said.match_expressions)


def _faults_of(selector: PodSelector, spelling: Spelling) -> Iterator[Fault]:
    labels, expressions = (f"selector.{spelling.of(each)}" for each in ("match_labels", "match_expressions"))
    for field, count in ((labels, len(selector.match_labels)), (expressions, len(selector.match_expressions))):
        if count > MOST_REQUIREMENTS:
            yield Fault(field, f"{field}: has {count} entries; write at most {MOST_REQUIREMENTS}")
    for key, value in selector.match_labels.items():
        field = f"{labels}[{quoted(key)}]"
        if why := _not_a_key(key) or _not_a_value(value):
            yield Fault(field, f"{field}: {why}")
    for index, each in enumerate(selector.match_expressions):
        yield from _faults_of_requirement(each, f"{expressions}[{index}]")


def _faults_of_requirement(requirement: LabelRequirement, at: str) -> Iterator[Fault]:
    if why := _not_a_key(requirement.key):
        yield Fault(f"{at}.key", f"{at}.key: {why}")
    if requirement.operator not in OPERATORS:
        said = f"{at}.operator: {quoted(requirement.operator)} does not exist; write one of {', '.join(OPERATORS)}"
        yield Fault(f"{at}.operator", said)
    elif (requirement.operator in ("In", "NotIn")) != bool(requirement.values):
        what = "needs at least one value" if requirement.operator in ("In", "NotIn") else "takes no values"
        yield Fault(f"{at}.values", f"{at}.values: {requirement.operator} {what}, not {quoted([*requirement.values])}")
    if len(requirement.values) > MOST_VALUES:
        yield Fault(f"{at}.values", f"{at}.values: has {len(requirement.values)}; write at most {MOST_VALUES}")
    for index, value in enumerate(requirement.values):
        if why := _not_a_value(value):
            yield Fault(f"{at}.values[{index}]", f"{at}.values[{index}]: {why}")


def _not_a_key(key: str) -> str:
    """Returns why this cannot be a label's key, and what would be valid; empty if it can."""
    prefix, slash, name = key.rpartition("/")
    if slash and not (len(prefix) <= _PREFIX_LIMIT and _PREFIX.fullmatch(prefix)):
        return f"{quoted(prefix)} is not a label prefix; write a DNS name, such as example.com"
    if len(name) > _NAME_LIMIT or not _NAME.fullmatch(name):
        return f"{quoted(name)} is not a label key; write letters, digits, '-', '_' and '.', at most {_NAME_LIMIT}"
    return ""


def _not_a_value(value: str) -> str:
    if value and (len(value) > _NAME_LIMIT or not _NAME.fullmatch(value)):
        return f"{quoted(value)} is not a label value; write letters, digits, '-', '_' and '.', at most {_NAME_LIMIT}"
    return ""
