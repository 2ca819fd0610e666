"""Maps and messages that expressions write out, for those who know some."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kubesim.apiserver.cel import Failed, Refused, compiled
from kubesim.apiserver.cel.types import ANY, DYN, INT, OPAQUE, TEXT, TIMESTAMP, ListOf, MapOf, ObjectOf, Type

THING = ObjectOf({"n": ("n", INT), "name": ("name", TEXT)})
MESSAGES: dict[str, dict[str, tuple[str, Type]]] = {
    "A": {
        "one": ("one", THING),
        "many": ("many", ListOf(THING)),
        "map": ("map", MapOf(TEXT)),
        "port": ("port", DYN),
        "any": ("any", ANY),
        "secret": ("secret", OPAQUE),
        "texts": ("texts", ListOf(TEXT)),
        "a__dash__b": ("a-b", INT),
    },
    "A.one": dict(THING.fields),
    "A.many": dict(THING.fields),
}
NAMES: dict[str, Type] = {
    "self": ObjectOf({
        "things": ("things", ListOf(THING)), "map": ("map", MapOf(TEXT)), "n": ("n", INT), "secret": ("secret", OPAQUE),
        "when": ("when", TIMESTAMP),
    })
}  # fmt: skip
SELF: dict[str, Any] = {"things": [{"n": 1, "name": "x"}], "map": {"a/b~c": "v"}}


def _known(name: str) -> Mapping[str, tuple[str, Type]] | None:
    return MESSAGES.get(name)


def _value(text: str) -> Any:
    return compiled(text, NAMES, _known)({"self": SELF})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("A{}", {}),
        ("A{one: A.one{n: 1 + 1, name: 'x'},}", {"one": {"n": 2, "name": "x"}}),
        ("A{many: [A.many{n: 1}, A.many{n: 2}]}", {"many": [{"n": 1}, {"n": 2}]}),
        ("A{many: self.things.map(each, A.many{name: each.name})}", {"many": [{"name": "x"}]}),
        ("A{many: self.things}", {"many": SELF["things"]}),
        ("A{many: []}", {"many": []}),
        ("A{map: {'k': 'v', 'w': self.map['a/b~c'],}}", {"map": {"k": "v", "w": "v"}}),
        ("A{map: {}}", {"map": {}}),
        ("A{?one: self.?n.optMap(n, A.one{n: n}), port: 'http'}", {"port": "http"}),
        ("A{?texts: optional.of(['a']), port: 80}", {"texts": ["a"], "port": 80}),
        ("A{map: {'a': 'b', ?'c': self.map[?'d']}}", {"map": {"a": "b"}}),
        ("A{a__dash__b: 1}", {"a-b": 1}),
        ("A{any: [{'a': 1}]}", {"any": [{"a": 1}]}),
        ("A{any: self.secret}", Failed),
        ("true ? [A{}] : []", [{}]),
        ("[A{port: 1}] + [A{}]", [{"port": 1}, {}]),
        ("{'a': 1}.size() + size({})", 1),
        ("{'a': 1}['a'] == 1 && 'a' in {'a': 1} && {'a': 1} == {'a': 1} && {'a': [1]}.a == [1]", True),
        ("self.?map.orValue({}).exists(key, key.startsWith('a/'))", True),
        ("self.?things.orValue([]).exists(each, each.n == 1)", True),
        ("jsonpatch.escapeKey('a/b~c')", "a~1b~0c"),
        ("self.map.map(key, '/metadata/' + jsonpatch.escapeKey(key))", ["/metadata/a~1b~0c"]),
        ("{'a': 1, 'a': 2}", Failed),
    ],
)
def test_what_is_written_out_is_as_in_json(text: str, value: Any) -> None:
    if value is Failed:
        with pytest.raises(Failed):
            _value(text)
    else:
        assert _value(text) == value


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("B{}", "undeclared reference to 'B'"),
        ("A.two{}", "undeclared reference to 'A.two'"),
        ("A{two: 1}", "undefined field 'two' of A"),
        ("A{port: true}", "expected type of field 'port'"),
        ("A{texts: [1]}", "expected type of field 'texts'"),
        ("A{one: A.many{}}", "expected type of field 'one'"),
        ("A{many: A.many{}}", "expected type of field 'many'"),
        ("A{port: 1, port: 2}", "given twice"),
        ("A{?port: 1}", "optional_type"),
        ("A{any: self.?n}", "expected type of field 'any'"),
        ("A{any: [self.when]}", "expected type of field 'any'"),
        ("{'a': 1, 'b': 'c'}", "expected type 'int' but found 'string'"),
        ("A{one}", "Syntax error"),
        ("A{one: }", "Syntax error"),
        ("A{port: 1", "Syntax error"),
        ("self.f(){}", "Syntax error"),
        ("self.?n{}", "Syntax error"),
        ("a" + ".a" * 5000, "more than 100 operations"),
        ("a" + ".a" * 5000 + "{}", "undeclared reference"),
        ("jsonpatch.other('a')", "undeclared reference to 'jsonpatch.other'"),
        ("jsonpatch.escapeKey(1)", "no matching overload"),
    ],
)
def test_what_does_not_fit_is_refused(text: str, why: str) -> None:
    with pytest.raises(Refused, match=why) as refused:
        _value(text)
    assert "--real" not in str(refused.value) or "operations" in why


@pytest.mark.parametrize("text", ["{1: 2}", "A{secret: 1}"])
def test_what_is_right_and_not_known_here_says_who_has_it(text: str) -> None:
    with pytest.raises(Refused, match='"--real" has it'):
        _value(text)


@pytest.mark.parametrize("text", ["{'a': 1}.size() == 1", "A{} == A{}"])
def test_whoever_knows_no_messages_has_no_maps_either(text: str) -> None:
    with pytest.raises(Refused, match='"--real" has it'):
        compiled(text, NAMES)
