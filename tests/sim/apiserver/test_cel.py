"""CEL: the rules of our definition, and the language around them."""

from __future__ import annotations

import pytest

from extender.sim.apiserver.cel import Failed, Optional, Unsupported, compiled, mentions

SELF = {"name": "ab-1", "list": [1, 2, 3], "map": {"k": "v"}, "flag": True, "n": 3}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("self.name.matches('^[a-z0-9-]*$')", True),
        ("size(self.name) <= (self.flag ? 4 : 1)", True),
        ("!has(self.missing) || self.missing == 1", True),
        ("has(self.map) && has(self.map.k)", True),
        ("self.list.all(x, x > 0)", True),
        ("self.list.exists(x, x > 2) && !self.list.exists_one(x, x > 1)", True),
        ("self.list.filter(x, x > 1) == [2, 3]", True),
        ("self.list.map(x, x * 2)[2] == 6", True),
        ("self.map['k'] + \"w\" == 'vw'", True),
        ("2 in self.list && 'k' in self.map", True),
        ("self.n - 1 == 2 && -self.n < 0 && 7 % 4 == 3 && 7 / 2 == 3", True),
        ("self.name.startsWith('ab') && self.name.endsWith('1') && self.name.contains('-')", True),
        ("self.flag == 1", False),
        ("self.n != 3", False),
        ("string(self.n) == '3' && int('3') == self.n", True),
    ],
)
def test_an_expression_has_the_value_that_cel_gives_it(text: str, value: object) -> None:
    assert compiled(text)({"self": SELF}) == value


def test_an_optional_may_have_no_value() -> None:
    rule = compiled("oldSelf.hasValue() ? oldSelf.value().n == self.n : self.n == 3")
    assert rule({"self": SELF, "oldSelf": Optional()})
    assert rule({"self": SELF, "oldSelf": Optional({"n": 3}, there=True)})
    assert not rule({"self": SELF, "oldSelf": Optional({"n": 4}, there=True)})
    assert compiled("oldSelf.orValue(5) == 5")({"oldSelf": Optional()})


@pytest.mark.parametrize("text", ["self.missing == 1", "self.map['z']", "other", "oldSelf.value()", "self.name.x"])
def test_what_is_not_there_is_a_failure(text: str) -> None:
    with pytest.raises(Failed):
        compiled(text)({"self": SELF, "oldSelf": Optional()})


@pytest.mark.parametrize("text", ["quantity(self.x)", "self.name.split(',')", "1 +", "self.", "a b", "#", "{'a': 1}"])
def test_what_is_not_known_is_said_before_it_is_used(text: str) -> None:
    with pytest.raises(Unsupported):
        compiled(text)


def test_a_rule_about_the_past_is_told_by_its_variable() -> None:
    assert mentions("self.a == oldSelf.a", "oldSelf")
    assert not mentions("self.a == self.b", "oldSelf")
