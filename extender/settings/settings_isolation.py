"""Settings of isolation: limits per namespace, and the nodes and names that it may touch.

    isolation:
      default: {resources: 50, gang_places: 256}
      namespaces:
        team-a: {resources: 100, units: 10000, policies: 50, gang_places: 512, nodes: {pool: a}, names: ["data*"]}

`default` fills what a namespace's entry leaves out. Without both there is no limit; `null` removes a limit of
`default`.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from extender.core.tenancy.isolation import Allowance, Counted
from extender.kube.names import InvalidName, require_label

_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_PATTERN = re.compile(r"[-a-z0-9*?]{1,63}")


def _label(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise ValueError("is not a label key; write one such as `pool` or `example.com/pool`")
    return key


def _values(said: object) -> object:
    return [said] if isinstance(said, str) else said


def _value(value: str) -> str:
    if not _VALUE.fullmatch(value):
        raise ValueError("is not a label value: write at most 63 letters, digits, '-', '_' and '.'")
    return value


def _pattern(pattern: str) -> str:
    if not _PATTERN.fullmatch(pattern):
        raise ValueError("matches no name: write lower-case letters, digits and '-', `*` and `?`, such as `data*`")
    return pattern


def _namespace(name: str) -> str:
    try:
        return require_label("namespace", name)
    except InvalidName as error:
        raise ValueError(str(error)) from None


Limit = Annotated[int | None, Field(ge=0, strict=True)]
Values = Annotated[tuple[Annotated[str, AfterValidator(_value)], ...], BeforeValidator(_values), Field(min_length=1)]


class AllowanceSettings(BaseModel):
    """What one namespace may have at once, and touch. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    resources: Limit = Field(500, description="ephemeral resources in force; a node can have 1,500 of all namespaces")
    units: Limit = Field(None, description="units of its ephemeral resources, summed over all nodes")
    policies: Limit = Field(200, description="EscherPolicies in force")
    gang_places: Limit = Field(None, description="members of its gangs that are bound or have a place reserved")
    claims: Limit = Field(None, description="claims of transactions")
    waiting_kinds: Limit = Field(1_000, description="kinds of waiting pods that are considered first")
    nodes: dict[Annotated[str, AfterValidator(_label)], Values] | None = Field(
        None, description="labels of the nodes that it may use, as a nodeSelector; of a list, any value matches"
    )
    names: tuple[Annotated[str, AfterValidator(_pattern)], ...] | None = Field(
        None, description="patterns of the names that its resources may have"
    )

    def allowance(self, default: AllowanceSettings) -> Allowance:
        """This entry's values, with those of `default` for unset fields."""
        said = {
            name: getattr(self if name in self.model_fields_set else default, name)
            for name in AllowanceSettings.model_fields
        }
        most = {each: said[each.value] for each in Counted if said[each.value] is not None}
        return Allowance(most, said["nodes"], said["names"])


NOTHING_SAID = AllowanceSettings()  # type: ignore[call-arg]


class IsolationSettings(BaseModel):
    """By namespace; `default` is for those that are not named, and for what the named leave out."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    default: AllowanceSettings = NOTHING_SAID
    namespaces: dict[Annotated[str, AfterValidator(_namespace)], AllowanceSettings] = Field(default_factory=dict)

    def allowances(self) -> tuple[Allowance, dict[str, Allowance]]:
        """The allowance of unnamed namespaces, and those of the named ones."""
        named = {name: said.allowance(self.default) for name, said in self.namespaces.items()}
        return self.default.allowance(NOTHING_SAID), named
