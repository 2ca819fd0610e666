"""What expressions may cost: the figures are what the packages of kube-apiserver 1.36.3 say of the same schema."""

from __future__ import annotations

from typing import Any

import pytest

from kubesim.apiserver.cel import compiled
from kubesim.apiserver.cel.types import OptionalOf
from kubesim.apiserver.schemas.schema_extents import extent, most_in_request
from kubesim.apiserver.schemas.schema_types import cel_type

WHOLE, TEXT = {"type": "integer"}, {"type": "string"}


def _texts(length: int, most: int) -> dict[str, Any]:
    return {"type": "array", "maxItems": most, "items": {"type": "string", "maxLength": length}}


DEEP = {"x": TEXT, "y": {"type": "string", "maxLength": 3}, "z": _texts(2, 17), "w": _texts(9, 2)}
THING = {"a": WHOLE, "t": {"type": "string", "maxLength": 11}, "l": _texts(2, 13), "k": _texts(6, 21)}
DEEPS = {"type": "array", "maxItems": 10, "items": {"type": "object", "properties": DEEP}}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["name", "n"],
    "properties": {
        "name": {"type": "string", "maxLength": 7},
        "long": TEXT,
        "enum": {"type": "string", "enum": ["a", "bcdé"]},
        "n": WHOLE,
        "flag": {"type": "boolean"},
        "list": {"type": "array", "items": WHOLE},
        "texts": _texts(9, 6),
        "any": {"type": "array", "items": TEXT},
        "map": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 4}},
        "lists": {"type": "object", "maxProperties": 8, "additionalProperties": _texts(5, 3)},
        "things": {
            "type": "array",
            "maxItems": 4,
            "items": {"type": "object", "required": ["t"], "properties": {**THING, "deep": DEEPS}},
        },
        "port": {"x-kubernetes-int-or-string": True},
        "short": {"x-kubernetes-int-or-string": True, "maxLength": 5},
        "when": {"type": "string", "format": "date-time"},
        "inner": {"type": "object", "properties": {"a": WHOLE, "t": {"type": "string", "maxLength": 19}}},
    },
}


@pytest.mark.parametrize(
    ("rule", "cost"),
    [
        ("self.n == 1", 2),
        ("self.inner == self.inner", 4),
        ("self.name == self.long", 7),
        ("self.enum == self.long", 5),
        ("self.long == 'abc'", 3),
        ("self.list.all(x, x > 0)", 7_864_318),
        ("self.list.exists(x, x > 0)", 9_437_181),
        ("self.list.exists_one(x, x > 0)", 6_291_456),
        ("self.texts.map(x, x == 'a', x + 'b').exists(y, y == self.long)", 170),
        ("self.texts.filter(x, x == 'a').exists(y, y == self.long)", 146),
        ("self.texts.map(x, x.split('')).all(y, y.all(z, z == self.long))", 170),
        ("self.things.all(x, x.deep.all(y, y.x == x.t))", 2_139),
        ("self.things.all(x, x.l.exists(y, x.k.exists(z, z == y)))", 12_963),
        ("self.things.all(x, x.deep.all(d, d.z.all(y, y in d.w)))", 907),
        ("self.things.filter(x, x.a > 1)[0].t == self.long", 314_654),
        ("self.any.all(x, self.any.all(y, x == y))", 345_881_509_131_242_703),
        ("self.map.all(k, self.map[k] == k)", 3_145_723),
        ("self.lists.all(k, self.lists[k].all(x, x == self.long))", 259),
        ("'a' in self.map && self.n in self.list", 1_572_870),
        ("type(self.port) == string && self.port == self.short", 10),
        ("self.port > 3 && self.port > self.short && self.short > 'a'", 12),
        ("self.port + 1 > 3", 4),
        ("self.short + self.short == self.long", 14),
        ("string(self.short) == self.long && string(self.n) == self.long", 314_586),
        ("self.long.matches('^[a-z]+$')", 629_148),
        ("matches(self.long, '^[a-z]+$')", 3),
        ("self.name.contains(self.long)", 943_723),
        ("self.long.startsWith(self.name) && self.name.endsWith('abcdefghijklmn')", 11),
        ("self.long.replace('a', self.name) == self.long", 943_725),
        ("self.name.replace(self.long, 'xyz') == self.long", 24),
        ("self.name.replace('abc', 'xy').replace('x', self.texts[0]) == self.long", 120),
        ("self.texts.join(',') == self.long", 50),
        ("self.any.join(self.name) == self.name", 329_855_900_062),
        ("self.name.substring(1, 2).lowerAscii() == self.long", 13),
        ("self.name.indexOf('a') == self.name.lastIndexOf('b') && self.name.charAt(0) == self.long", 314_589),
        ("size(self.name) < self.list.size()", 7),
        ("has(self.name) && has(self.inner.a) ? self.n == 1 : self.list.all(x, x == 1)", 6_291_458),
        ("(self.flag ? self.name : self.long) == self.long", 314_579),
        ("(self.flag ? self.inner : self.inner).t == self.long", 7),
        ("self.?name.orValue('abc') == self.long && self.?n.orValue(3) == 3", 314_582),
        ("self.?inner.t.orValue('') == self.long", 314_578),
        ("self.texts[?0].orValue('') == self.long", 314_579),
        ("self.?name.optMap(x, x + 'a').orValue('') == self.long", 1_844_674_407_371_269_858),
        ("self.?inner.optFlatMap(x, x.?t).orValue('') == self.long", 314_594),
        ("optional.none().or(optional.of(1)).value() == 1", 5),
        ("oldSelf.value().name == self.long && self.when < timestamp(self.long)", 11),
        ("['a', self.long][0] == self.long && [self.texts, ['b']][0].all(x, x == self.long)", 2_202_086),
        ("(self.texts + ['abc']).all(x, x == self.long) && (['abc'] + ['defg']).all(x, x == self.long)", 90),
        ("(self.flag ? ['abc'] : ['defg']).all(x, x == self.long)", 19),
        ("'é€' == self.long && !(!self.flag) && -self.n > 0", 11),
        ("self.texts.all(self, self == 'abc')", 33),
    ],
)
def test_an_expression_costs_what_it_does_in_kube_apiserver(rule: str, cost: int) -> None:
    of_self, size = cel_type(SCHEMA), extent(SCHEMA)
    assert of_self is not None
    assert size is not None
    assert compiled(rule, {"self": of_self, "oldSelf": OptionalOf(of_self)}).cost(size) == cost


def test_how_often_something_fits_into_a_request_comes_from_what_it_must_have() -> None:
    size = extent(SCHEMA)
    assert size is not None
    assert most_in_request(size) == 165_564
