"""CEL against another implementation of it, cel-cpp: what both take has the same value, and what it refuses we refuse.

What is drawn is mostly wrong, on purpose: types that do not go together, parts that are not there, divisions by zero.
kube-apiserver compares whole numbers with fractions, which cel-cpp does not: there is nothing to compare with then.
"""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from cel_expr_python import cel
from cel_expr_python.ext import ext_optional
from hypothesis import example, given
from hypothesis import strategies as st

from kubesim.apiserver.cel import Failed, Refused, compiled
from kubesim.apiserver.cel.types import BOOL, DOUBLE, INT, TEXT, ListOf, MapOf, Type

TYPES: dict[str, Type] = {
    "i": INT,
    "j": INT,
    "d": DOUBLE,
    "s": TEXT,
    "t": TEXT,
    "b": BOOL,
    "l": ListOf(INT),
    "k": ListOf(TEXT),
    "m": MapOf(INT),
    "n": MapOf(ListOf(INT)),
}
OF_CEL = cel.Type
THEIRS = cel.NewEnv(
    variables={
        "i": OF_CEL.INT,
        "j": OF_CEL.INT,
        "d": OF_CEL.DOUBLE,
        "s": OF_CEL.STRING,
        "t": OF_CEL.STRING,
        "b": OF_CEL.BOOL,
        "l": OF_CEL.List(OF_CEL.INT),
        "k": OF_CEL.List(OF_CEL.STRING),
        "m": OF_CEL.Map(OF_CEL.STRING, OF_CEL.INT),
        "n": OF_CEL.Map(OF_CEL.STRING, OF_CEL.List(OF_CEL.INT)),
    },
    extensions=[ext_optional.ExtOptional()],
)
FAILED, REFUSED, NOT_HERE, MIXED = "failed", "refused", "not here", "mixed"
_MIXED = re.compile(r"'_[<>]=?_' applied to '\((int, double|double, int)\)'")

_WHOLE = st.sampled_from(["i", "j", "x", "0", "1", "2", "-1", "-7", "3", "size(s)", "size(l)", "l.size()", "0x10"])
_LARGE = st.sampled_from(["9223372036854775807", "-9223372036854775808"])
_REAL = st.sampled_from(["d", "0.0", "1.5", "-2.0", "1e3", ".5"])
_TEXT = st.sampled_from(["s", "t", "''", "'a'", "'ab'", "'a\\n'", 'r"a"', "'é'", "'\\u00e9'"])
_FLAG = st.sampled_from(["b", "true", "false", "has(m.a)", "has(m.z)", "has(n.a)", "has(m.a.b)", "has(s)"])
_LIST = st.sampled_from(["l", "[]", "[1, 2]", "[1]", "k", "['a']", "n['a']", "n.a", "n.z", "[[1]]", "[1, 'a']"])
_MAP = st.sampled_from(["m", "n"])
_LEAF = st.one_of(_WHOLE, _LARGE, _REAL, _TEXT, _FLAG, _LIST, _MAP, st.just("null"))
_SIGNS = ("+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||", "in")
_METHODS = ("startsWith", "endsWith", "contains", "matches")


def _more(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    part = inner.map(lambda text: f"({text})")
    return st.one_of(
        st.tuples(part, st.sampled_from(_SIGNS), part).map(" ".join),
        st.tuples(part, part, part).map(lambda it: f"{it[0]} ? {it[1]} : {it[2]}"),
        part.map(lambda it: f"!{it}"),
        part.map(lambda it: f"-{it}"),
        st.tuples(part, st.sampled_from(_METHODS), part).map(lambda it: f"{it[0]}.{it[1]}({it[2]})"),
        st.tuples(st.sampled_from(["size", "string", "int", "double"]), part).map(lambda it: f"{it[0]}{it[1]}"),
        st.tuples(part, st.sampled_from(["all", "exists", "exists_one", "filter", "map"]), inner).map(
            lambda it: f"{it[0]}.{it[1]}(x, {it[2]})"
        ),
        st.tuples(part, inner, inner).map(lambda it: f"{it[0]}.map(x, {it[1]}, {it[2]})"),
        st.tuples(part, part).map(lambda it: f"{it[0]}[{it[1]}]"),
        st.tuples(part, part, part).map(lambda it: f"{it[0]}[?{it[1]}].orValue({it[2]})"),
        st.tuples(part, part).map(lambda it: f"{it[0]}.?a.orValue({it[1]})"),
        st.tuples(part, part).map(lambda it: f"[{it[0]}, {it[1]}]"),
    )


EXPRESSIONS = st.recursive(_LEAF, _more, max_leaves=8)
_TEXTS = st.text(alphabet="ab\né.$^", max_size=4)
_INTEGERS = st.integers(-8, 8) | st.sampled_from([2**63 - 1, -(2**63)])
VARIABLES = st.fixed_dictionaries(
    {
        "i": _INTEGERS,
        "j": _INTEGERS,
        "d": st.sampled_from([0.0, -0.0, 1.5, -2.25, 1e300]),
        "s": _TEXTS,
        "t": _TEXTS,
        "b": st.booleans(),
        "l": st.lists(st.integers(-3, 3), max_size=4),
        "k": st.lists(st.text(alphabet="ab", max_size=2), max_size=3),
        "m": st.dictionaries(st.sampled_from("abc"), st.integers(-3, 3), max_size=3),
        "n": st.dictionaries(st.sampled_from("abc"), st.lists(st.integers(-3, 3), max_size=2), max_size=2),
    }
)


def _ours(text: str, variables: dict[str, Any]) -> Any:
    try:
        program = compiled(text, TYPES)
    except Refused as refused:
        # kube-apiserver takes no lists of mixed types; CEL itself does.
        return NOT_HERE if "--real" in str(refused) or "expected type" in str(refused) else REFUSED
    try:
        return program(variables)
    except Failed:
        return FAILED


def _theirs(text: str, variables: dict[str, Any]) -> Any:
    try:
        program = THEIRS.compile(text)
    except RuntimeError as error:
        return MIXED if _MIXED.search(str(error)) else REFUSED
    try:
        found = program.eval(data=variables)
    except RuntimeError:
        return FAILED
    return FAILED if found.type() == OF_CEL.ERROR else found.plain_value()


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and bool(one == other)


def _agree(text: str, variables: dict[str, Any]) -> None:
    ours = _ours(text, variables)
    if ours != NOT_HERE:
        theirs = _theirs(text, variables)
        assert theirs == MIXED or _same(ours, theirs), f"{text}: {ours!r} here, {theirs!r} there, of {variables}"


@given(EXPRESSIONS, VARIABLES)
def test_any_expression_is_what_it_is_there(text: str, variables: dict[str, Any]) -> None:
    _agree(text, variables)


_NUMBER = st.recursive(
    st.sampled_from(["i", "j", "1", "0", "-7", "2", "size(s)", "m.a", "l[0]", "l[2]", "m['b']", "m.?z.orValue(i)"]),
    lambda inner: st.tuples(inner, st.sampled_from("+-*/%"), inner).map(lambda it: f"({it[0]} {it[1]} {it[2]})"),
    max_leaves=4,
)
_CONDITION = st.one_of(
    st.tuples(_NUMBER, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), _NUMBER).map(" ".join),
    st.sampled_from(
        ["b", "has(m.a)", "has(n.b)", "s == t", "s.startsWith(t)", "t in k", "s < t", "n.a == l", "l == []"]
    ),
    st.tuples(_NUMBER, st.just("in l")).map(" ".join),
    st.tuples(st.sampled_from(["s", "t", "'a\\n'"]), st.sampled_from(["^a$", "a.b", "$", "^", "\\\\z", "[ab]$"])).map(
        lambda it: f"{it[0]}.matches('{it[1]}')"
    ),
)


def _more_conditions(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(inner, st.sampled_from(["&&", "||", "==", "!="]), inner).map(
            lambda it: f"({it[0]}) {it[1]} ({it[2]})"
        ),
        inner.map(lambda it: f"!({it})"),
        st.tuples(inner, inner, inner).map(lambda it: f"({it[0]}) ? ({it[1]}) : ({it[2]})"),
        st.tuples(st.sampled_from(["all", "exists", "exists_one"]), inner, st.sampled_from(["i", "j", "1"])).map(
            lambda it: f"l.{it[0]}({it[2]}, {it[1]})" if it[2] != "1" else f"n.{it[0]}(key, m[key] > 0 || ({it[1]}))"
        ),
        inner.map(lambda it: f"l.filter(i, {it}).size() > 1"),
        inner.map(lambda it: f"l.map(j, {it}, i / j) == l.map(i, j)"),
    )


CONDITIONS = st.recursive(_CONDITION, _more_conditions, max_leaves=6)


@given(CONDITIONS, VARIABLES)
@example("b || i / 0 == 1", {"i": 1, "b": True})
def test_any_condition_of_the_right_types_is_what_it_is_there(text: str, variables: dict[str, Any]) -> None:
    _agree(text, {"j": 0, "d": 0.0, "s": "", "t": "", "l": [], "k": [], "m": {}, "n": {}} | variables)
    assert _ours(text, variables) not in (REFUSED, NOT_HERE)


@pytest.mark.parametrize(
    "text",
    ["-7/2", "-7 % 3", "string(true)", "has(n.a[0].b)", "'a\\n'.matches('a$')", "i/0 == 1 || true", "null == null"],
)
def test_what_was_wrong_once_is_the_same_there(text: str) -> None:
    _agree(text, {"i": 1, "n": {"a": [1]}})
