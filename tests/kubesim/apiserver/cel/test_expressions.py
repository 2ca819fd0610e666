"""Expressions: their values, their errors, and what is refused before it is ever evaluated."""

from __future__ import annotations

from typing import Any

import pytest

from kubesim.apiserver.cel import Failed, Optional, Refused, compiled
from kubesim.apiserver.cel.types import OptionalOf, Type
from kubesim.apiserver.schemas.schema_types import cel_type

TEXT, WHOLE, REAL, FLAG = {"type": "string"}, {"type": "integer"}, {"type": "number"}, {"type": "boolean"}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": TEXT,
        "list": {"type": "array", "items": WHOLE},
        "texts": {"type": "array", "items": TEXT},
        "map": {"type": "object", "additionalProperties": TEXT},
        "flag": FLAG,
        "n": WHOLE,
        "real": REAL,
        "reals": {"type": "array", "items": REAL},
        "missing": WHOLE,
        "port": {"x-kubernetes-int-or-string": True},
        "size": {"x-kubernetes-int-or-string": True},
        "inner": {"type": "object", "properties": {"a": WHOLE, "b": WHOLE}},
        "things": {"type": "array", "items": {"type": "object", "properties": {"a": WHOLE, "b": WHOLE}}},
        "set": {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"},
        "when": {"type": "string", "format": "date-time"},
        "long": {"type": "string", "format": "duration"},
        "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "a-b.c/d": WHOLE,
        "namespace": TEXT,
        "two__under": TEXT,
        "none": {"type": "integer", "nullable": True},
        "nulls": {"type": "object", "additionalProperties": {"type": "integer", "nullable": True}},
    },
}
SELF: dict[str, Any] = {
    "name": "ab-1",
    "list": [1, 2, 3],
    "texts": ["x", "y"],
    "map": {"k": "v"},
    "flag": True,
    "n": 3,
    "real": 1,
    "reals": [1, 2.5],
    "port": "http",
    "size": 3,
    "inner": {"a": 1},
    "things": [{"a": 1}, {"a": 2, "b": 3}],
    "set": ["p", "q"],
    "when": "2026-01-01T01:00:00+01:00",
    "long": "60s",
    "any": {"x": 1},
    "a-b.c/d": 4,
    "namespace": "default",
    "two__under": "u",
    "none": None,
    "nulls": {"a": None},
}
OF_SELF = cel_type(SCHEMA)
assert OF_SELF is not None


def _value(text: str, old: Optional | None = None) -> Any:
    assert OF_SELF is not None
    variables: dict[str, Type] = {"self": OF_SELF}
    if old is None:
        return compiled(text, variables)({"self": SELF})
    return compiled(text, {**variables, "oldSelf": OptionalOf(OF_SELF)})({"self": SELF, "oldSelf": old})


@pytest.mark.parametrize(
    "text",
    [
        "self.name.matches('^[a-z0-9-]*$')",
        "size(self.name) <= (self.flag ? 4 : 1)",
        "!has(self.missing) || self.missing == 1",
        "has(self.map) && has(self.map.k) && !has(self.map.z)",
        "self.list.all(x, x > 0)",
        "self.list.exists(x, x > 2) && !self.list.exists_one(x, x > 1)",
        "self.list.filter(x, x > 1) == [2, 3]",
        "self.list.map(x, x * 2)[2] == 6 && self.list.map(x, x > 1, x * 2) == [4, 6]",
        "self.map['k'] + \"w\" == 'vw'",
        "2 in self.list && 'k' in self.map && !('z' in self.map)",
        "self.n - 1 == 2 && -self.n < 0 && 7 % 4 == 3 && 7 / 2 == 3",
        "-7 / 2 == -3 && 7 / -2 == -3 && -7 % 3 == -1 && 7 % -3 == 1",
        "-9223372036854775808 < 0 && 0xff == 255 && 1e3 == 1000.0 && .5 == 0.5",
        "self.name.startsWith('ab') && self.name.endsWith('1') && self.name.contains('-')",
        "string(self.n) == '3' && int('3') == self.n && string(true) == 'true' && string('a') == 'a'",
        "self.real / 2.0 == 0.5 && self.reals[0] / 2.0 == 0.5 && self.real < 2 && 1.0 in self.reals",
        "has(self.things[1].b) && !has(self.things[0].b)",
        "self.things.all(each, !has(each.b) || each.b == 3)",
        "self.things.map(each, each.a) == [1, 2]",
        "self.map.all(key, key == 'k') && self.map.exists(key, self.map[key] == 'v')",
        "!'a\\n'.matches('^a$') && 'a'.matches('a$') && 'b\\na'.matches('(?m)^a$') && 'é'.matches('\\\\pL')",
        "self.port == 'http' && self.port != 80 && type(self.port) == string && type(self.size) == int",
        "self.size < 4 && self.size + 1 == 4 && self.port.startsWith('h') && string(self.size) == '3'",
        "self.set == ['q', 'p'] && self.texts != ['y', 'x'] && self.list + [4] == [1, 2, 3, 4]",
        "self.when == timestamp('2026-01-01T00:00:00Z') && self.when < timestamp('2026-01-01T00:00:00.000000001Z')",
        "self.a__dash__b__dot__c__slash__d == 4 && self.__namespace__ == self.namespace",
        "self.two__underscores__under == 'u'",
        "self.?missing.orValue(5) == 5 && self.?n.value() == 3 && !self.?missing.hasValue()",
        "self.list[?7].orValue(0) == 0 && self.map[?'k'].value() == 'v'",
        "self.?inner.a.orValue(0) == 1 && self.?inner.?b.orValue(7) == 7 && self.?n.optMap(x, x + 1).orValue(0) == 4",
        "self.texts.join('-') == 'x-y' && 'a,b'.split(',') == ['a', 'b'] && 'AbÉ'.lowerAscii() == 'abÉ'",
        "'hello'.substring(1, 3) == 'el' && 'hello'.indexOf('l') == 2 && 'a'.charAt(1) == ''",
        "'aa'.replace('a', 'b') == 'bb'",
        r"""'\u00e9\101\x41\'' == 'éAA\'' && r'\n' == '\\n' && '''a'b''' == "a'b" """,
        "true // a remark\n && true",
        "[] == [] && size([]) == 0 && !(1 in []) && 'é'.size() == 1",
        "!has(self.none) && !self.?none.hasValue() && has(self.nulls.a)",
    ],
)  # fmt: skip
def test_an_expression_has_the_value_that_cel_gives_it(text: str) -> None:
    assert _value(text) is True


@pytest.mark.parametrize(
    "text",
    [
        "1 / 0 == 1 || true",
        "true || 1 / 0 == 1",
        "!(1 / 0 == 1 && false)",
        "!(false && 1 / 0 == 1)",
        "self.list.exists(x, x / (x - 1) == 2 || x == 3)",
        "!self.list.all(x, 1 / (x - 1) > 0 && x < 3)",
        "self.missing == 1 || self.n == 3 || self.missing == 2",
        "self.port > 3 || true",
    ],
)
def test_an_error_is_absorbed_where_the_rest_decides(text: str) -> None:
    assert _value(text) is True


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("self.missing == 1", "no such key: missing"),
        ("self.map['z'] == ''", "no such key: z"),
        ("self.list[3] == 1", "index out of bounds: 3"),
        ("self.list[-1] == 1", "index out of bounds: -1"),
        ("has(self.things[5].a)", "index out of bounds: 5"),
        ("1 / 0 == 1", "division by zero"),
        ("1 % 0 == 1", "modulus by zero"),
        ("9223372036854775807 + 1 > 0", "integer overflow"),
        ("-(-9223372036854775807 - 1) > 0", "integer overflow"),
        ("int(1e300) > 0", "integer overflow"),
        ("int(' 3') == 3", "type conversion error"),
        ("int('1_0') == 10", "type conversion error"),
        ("oldSelf.value().n == 1", "optional.none"),
        ("false || 1 / 0 == 1", "division by zero"),
        ("true && self.missing == 1", "no such key"),
        ("self.list.all(x, 1 / (x - 1) < 9)", "division by zero"),
        ("self.port > 3", "no such overload"),
        ("self.size.startsWith('a')", "no such overload"),
        ("self.none + 1 > 0", "no such key: none"),
        ("self.nulls.a + 1 > 0", "no such overload"),
        ("'a'.matches(self.name + '(')", "parsing regexp"),
    ],
)
def test_what_has_no_value_is_a_failure(text: str, why: str) -> None:
    with pytest.raises(Failed, match=why):
        _value(text, Optional())


def test_an_optional_may_have_no_value() -> None:
    rule = "oldSelf.hasValue() ? oldSelf.value().n == self.n : self.n == 3"
    assert _value(rule, Optional())
    assert _value(rule, Optional({"n": 3}, there=True))
    assert not _value(rule, Optional({"n": 4}, there=True))
    assert _value("oldSelf.?n.orValue(5) == 5", Optional())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("self.unknown == 1", "undefined field 'unknown'"),
        ("self.any.x == 1", "undefined field 'x'"),
        ("other", "undeclared reference to 'other'"),
        ("frobnicate(1)", "undeclared reference to 'frobnicate'"),
        ("self.flag == 1", r"no matching overload for '_==_' applied to '\(bool, int\)'"),
        ("1 == 1.0", "no matching overload"),
        ("self.inner == self.things[0]", "no matching overload"),
        ("self.n == null", "no matching overload"),
        ("self.n + 1.0 > 0.0", "no matching overload"),
        ("self.n && true", "no matching overload"),
        ("self.n ? true : false", "no matching overload"),
        ("self.flag ? 1 : 'a'", "no matching overload"),
        ("!self.n", "no matching overload"),
        ("self.name.x", "does not support field selection"),
        ("self.list['a'] == 1", "no matching overload"),
        ("'a' in self.list", "no matching overload"),
        ("self.n.all(x, true)", "cannot be range"),
        ("self.list.all(x, x)", "no matching overload"),
        ("self.list.all(x.y, true)", "simple name"),
        ("has(self)", "has"),
        ("[1, 'a'] == []", "expected type"),
        ("1 < 2 < 3", "no matching overload"),
        ("'a'.matches('(')", "regexp"),
        ("1 +", "Syntax error"),
        ("self.", "Syntax error"),
        ("a b", "Syntax error"),
        ("#", "Syntax error"),
        ("", "Syntax error"),
        ("true ? true ? true : true : true", "Syntax error"),
        ("'a", "Syntax error"),
        (r"'\q'", "escape"),
        ("9223372036854775808 > 0", "invalid int literal"),
        ("for == 1", "reserved identifier"),
    ],
)
def test_what_would_not_compile_is_refused(text: str, why: str) -> None:
    with pytest.raises(Refused, match=why) as refused:
        _value(text)
    assert "--real" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "quantity(self.name).isPositive()",
        "self.texts.isSorted()",
        "self.name.find('a') == ''",
        "{'a': 1}.size() == 1",
        "1u == 1u",
        "b'a' == b'a'",
        "duration('1s') == duration('1s')",
        "self.long == self.long",
        "self.set + ['r'] == self.set",
        "type(self.n) == int",
        "string(self.real) == '1'",
        "double(self.name) == 1.0",
        "self.when - self.when == self.when",
        "self.map.all(k, v, v != '')",
        "optional.ofNonZeroValue(1).hasValue()",
        "(" * 60 + "true" + ")" * 60,
        "true == " * 300 + "true",
    ],
)
def test_what_is_right_and_not_known_here_is_refused_and_says_who_has_it(text: str) -> None:
    with pytest.raises(Refused, match='not in the embedded cluster; "--real" has it'):
        _value(text)


def test_long_alternatives_are_no_trouble() -> None:
    assert _value(" || ".join(["self.n == 4"] * 3000 + ["self.n == 3"]))


def test_what_takes_too_long_ends() -> None:
    of_list = cel_type({"type": "array", "items": WHOLE})
    assert of_list is not None
    many = compiled("self.all(a, self.all(b, self.all(c, a + b + c >= 0)))", {"self": of_list})
    with pytest.raises(Failed, match="cost limit exceeded"):
        many({"self": list(range(500))})


def test_the_variables_that_an_expression_reads_are_known() -> None:
    assert OF_SELF is not None
    names: dict[str, Type] = {"self": OF_SELF, "oldSelf": OF_SELF}
    assert compiled("self.n == oldSelf.n", names).uses == {"self", "oldSelf"}
    assert compiled("self.name == 'oldSelf'", names).uses == {"self"}
