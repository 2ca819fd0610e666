"""Validation rules of definitions: what compiles and what an object must fulfil; the rest is refused at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from lab.controlplane.api import ApiError
from tests.conformance.site import Json, Site
from tests.controlplane.deadline import eventually

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TEXT = {"type": "string", "maxLength": 20}
WHOLE = {"type": "integer"}
FIELDS: Json = {
    "text": TEXT,
    "line": TEXT,
    "n": WHOLE,
    "missing": WHOLE,
    "real": {"type": "number"},
    "flag": {"type": "boolean"},
    "list": {"type": "array", "maxItems": 5, "items": WHOLE},
    "set": {"type": "array", "maxItems": 5, "items": TEXT, "x-kubernetes-list-type": "set"},
    "map": {"type": "object", "maxProperties": 5, "additionalProperties": TEXT},
    "things": {"type": "array", "maxItems": 5, "items": {"type": "object", "properties": {"a": WHOLE, "b": WHOLE}}},
    "port": {"x-kubernetes-int-or-string": True},
    "when": {"type": "string", "format": "date-time"},
    "a-b": WHOLE,
    "namespace": TEXT,
    "none": {"type": "integer", "nullable": True},
}
SPEC: Json = {
    "text": "ab-1",
    "line": "a\n",
    "n": 3,
    "real": 1,
    "flag": True,
    "list": [1, 2, 3],
    "set": ["p", "q"],
    "map": {"k": "v"},
    "things": [{"a": 1}, {"a": 2, "b": 3}],
    "port": "http",
    "when": "2026-01-01T01:00:00+01:00",
    "a-b": 4,
    "namespace": "x",
    "none": None,
}
TRUE = [
    "1 / (self.n - 3) == 1 || true",
    "!(1 / (self.n - 3) == 1 && false)",
    "self.list.exists(x, x / (x - 1) == 2 || x == 3)",
    "!self.list.all(x, 1 / (x - 1) > 0 && x < 3)",
    "has(self.things[1].b) && !has(self.things[0].b)",
    "-7 / 2 == -3 && -7 % 3 == -1 && -9223372036854775808 < 0",
    "string(self.flag) == 'true' && string(self.n) == '3' && int('3') == 3",
    "!self.line.matches('^a$') && self.text.matches('^[a-z0-9-]*$')",
    "self.real / 2.0 == 0.5 && self.real < 2",
    "self.set == ['q', 'p'] && ['p', 'q'] == self.set",
    "self.map.all(key, key == 'k') && 'k' in self.map && self.map['k'] == 'v'",
    "self.things.map(each, each.a) == [1, 2] && self.list.filter(x, x > 1) == [2, 3]",
    "self.port == 'http' && self.port != 80 && type(self.port) == string",
    "self.when == timestamp('2026-01-01T00:00:00Z')",
    "self.a__dash__b == 4 && self.__namespace__ == 'x' && self.namespace == 'x'",
    "self.?missing.orValue(5) == 5 && self.?n.optMap(x, x + 1).orValue(0) == 4 && self.list[?7].orValue(0) == 0",
    "'Ab'.lowerAscii() == 'ab' && 'abc'.substring(1, 2) == 'b'",
    r"'\u00e9\x41' == 'éA' && r'\n' == '\\n'",
    "self.list.map(x, x > 1, x * 2) == [4, 6] && self.list + [4] == [1, 2, 3, 4]",
    "optional.of(1).or(optional.none()).value() == 1",
    "self.n in [1, 2, 3] && size('é') == 1",
    "!has(self.none) && !self.?none.hasValue()",
]
BROKEN = {
    "self.missing == 1": "no such key: missing",
    "self.none != 1": "no such key: none",
    "self.map['z'] == ''": "no such key: z",
    "self.list[3] == 1": "index out of bounds: 3",
    "1 / (self.n - 3) == 1": "division by zero",
    "9223372036854775807 + self.n > 0": "integer overflow",
    "self.port > 3": "no such overload",
}
REFUSED = [
    "self.unknown == 1",
    "other",
    "frobnicate(1)",
    "self.flag == 1",
    "self.n == null",
    "self.n + 1.0 > 0.0",
    "self.n",
    "self.flag ? 1 : 'a'",
    "self.text.x == 1",
    "'a' in self.list",
    "self.list.all(x, x)",
    "[1, 'a'].size() == 2",
    "self.text.matches('(')",
    "1 +",
    "true ? true ? true : true : true",
    r"'\q' == ''",
    "9223372036854775808 > 0",
    "self.things[0] == self",
]


def _definition(site: Site, rules: Sequence[str], word: str = "") -> Json:
    group, plural = f"{site.namespace}.rules.test", f"things{word}"
    spec = {
        "type": "object",
        "properties": FIELDS,
        "x-kubernetes-validations": [{"rule": rule, "message": f"rule {at}"} for at, rule in enumerate(rules)],
    }
    schema = {"type": "object", "properties": {"spec": spec}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"plural": plural, "kind": f"Thing{word}"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


def _installed(site: Site, rules: Sequence[str]) -> str:
    """Where objects of a kind with these rules are."""
    made = site.cluster_wide(DEFINITIONS, _definition(site, rules))
    path = f"/apis/{made['spec']['group']}/v1/{made['spec']['names']['plural']}"

    def served() -> bool:
        try:
            return bool(site.api.get(path))
        except ApiError:
            return False

    eventually(served, what="the kind is served")
    return path


def _thing(path: str) -> Json:
    group = path.split("/")[2]
    return {"apiVersion": f"{group}/v1", "kind": "Thing", "metadata": {"name": "x"}, "spec": SPEC}


def _broken(site: Site, path: str) -> str:
    said: Any = site.refusal(lambda: site.api.post(path, _thing(path)), 422, "Invalid")
    return str(said)


def test_rules_mean_the_same(site: Site) -> None:
    path = _installed(site, TRUE)
    assert site.api.post(path, _thing(path))["spec"]["n"] == 3
    site.api.delete(f"{path}/x")


def test_the_contrary_of_each_is_broken(site: Site) -> None:
    path = _installed(site, [f"!({rule})" for rule in TRUE])
    said = _broken(site, path)
    assert [at for at in range(len(TRUE)) if f"rule {at}" not in said] == []
    assert "evaluating rule" not in said
    assert "no such overload" not in said


def test_what_has_no_value_is_told(site: Site) -> None:
    path = _installed(site, list(BROKEN))
    said = _broken(site, path)
    assert [why for why in BROKEN.values() if why not in said] == []


@pytest.mark.parametrize("rule", REFUSED)
def test_what_does_not_compile_is_refused_with_the_definition(site: Site, rule: str) -> None:
    said = site.refusal(lambda: site.api.post(DEFINITIONS, _definition(site, [rule])), 422, "Invalid")
    assert "properties[spec].x-kubernetes-validations[0].rule" in str(said)


LONG: Json = {"type": "string"}
LONGS: Json = {"type": "array", "items": LONG}


def _priced(site: Site, of_type: Json, *rules: Json) -> Json:
    """A definition with these rules of one field."""
    made = _definition(site, [])
    field = {**of_type, "x-kubernetes-validations": list(rules)}
    schema = {"type": "object", "properties": {"a": field}}
    made["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema
    return made


@pytest.mark.parametrize(
    ("of_type", "rule", "factor"),
    [
        (LONG, {"rule": f"self.contains('{'a' * 340}')"}, "1.069548x"),
        (LONGS, {"rule": "self.all(x, x == 'abc') && self.exists(x, x == 'abc')"}, "1.153433x"),
        (LONGS, {"rule": "self.all(x, x in self)"}, "more than 100x"),
        ({**LONGS, "maxItems": 30}, {"rule": "self.map(x, x + 'a').exists(x, x == self[0] + self[1])"}, "2.8x"),
        ({**LONGS, "maxItems": 9}, {"rule": "self.join(self[0]).replace('a', 'bb').matches('^a*$')"}, "2.7x"),
        (LONG, {"rule": "true", "messageExpression": "string(size(self)) + self"}, "more than 100x"),
    ],
)
def test_what_may_cost_too_much_is_refused_by_how_much(site: Site, of_type: Json, rule: Json, factor: str) -> None:
    """Rules cost too much by the limits that the schema has, whatever objects there will be."""
    said = site.refusal(lambda: site.api.post(DEFINITIONS, _priced(site, of_type, rule)), 422, "Invalid")
    what = "messageExpression" if "messageExpression" in rule else "rule"
    where = f"spec.validation.openAPIV3Schema.properties[a].x-kubernetes-validations[0].{what}"
    assert f"{where}: Forbidden: estimated {what} cost exceeds budget by factor of {factor} (" in str(said)


def test_what_may_cost_too_much_together_is_refused(site: Site) -> None:
    rules = [{"rule": f"self.contains('{'a' * (310 - 10 * at)}')"} for at in range(13)]
    said = str(site.refusal(lambda: site.api.post(DEFINITIONS, _priced(site, LONG, *rules)), 422, "Invalid"))
    assert "estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of 1.022362x (" in said
    assert said.count("contributed to estimated rule cost total exceeding cost limit") == 4
