"""Names that nobody has read are what they are when somebody reads them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from extender.adapters.http.problems import Problem
from extender.adapters.http.verbs import wire
from extender.adapters.http.verbs.lazy_node_names import LazyNodeNames, cut_out, sent_names
from extender.app.contracts.extender_api import Verdict
from tests.adapters.http.fakes import filter_body

NAMES = [f"node-{number}.zone-{number % 3}" for number in range(40)]

values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text('az-.09 "\\,[]{}', max_size=3),
    lambda each: st.lists(each, max_size=20) | st.dictionaries(st.text('az",', max_size=2), each, max_size=2),
)


def dumped(value: Any, *, spaces: bool = False) -> bytes:
    return json.dumps(value, separators=None if spaces else (",", ":")).encode()


@given(st.lists(st.sampled_from(NAMES) | values, max_size=30) | values, st.booleans())
def test_whatever_is_taken_for_names_is_a_list_of_texts_as_they_were_sent(value: Any, spaces: bool) -> None:
    raw = dumped(value, spaces=spaces)
    names = sent_names(Raw(raw))
    if names is not None:
        assert list(names) == value
        assert all(isinstance(each, str) for each in value)
        assert len(names) == len(value)
        assert msgspec.json.encode(names.raw) == msgspec.json.encode(value)


@given(st.lists(st.sampled_from(NAMES), min_size=17))
def test_more_than_a_few_names_are_not_read(value: list[str]) -> None:
    names = sent_names(Raw(dumped(value)))
    assert names is not None
    assert len(names) == len(value)
    assert (names[0], names[-1], list(names[2:4])) == (value[0], value[-1], value[2:4])
    assert value[3] in names
    assert "elsewhere" not in names


@given(
    st.lists(st.sampled_from(NAMES), min_size=17),
    st.sampled_from(NAMES) | st.text('noder1-."\\,\u00e9\ud800', max_size=8) | st.integers(0, 1),
)
def test_a_name_is_found_among_those_that_nobody_has_read(value: list[str], sought: Any) -> None:
    names = sent_names(Raw(dumped(value)))
    assert names is not None
    assert (sought in names) == (sought in value)
    assert list(names) == value
    assert (sought in names) == (sought in value)


@pytest.mark.parametrize(
    "raw",
    [
        b"null",
        b"[]",
        dumped(NAMES[:16]),
        dumped(NAMES, spaces=True),
        dumped([*NAMES, 1]),
        dumped([*NAMES, ["a"], NAMES[0]]),
        dumped([*NAMES, {"a": "b"}]),
        dumped([*NAMES, "a,b"]),
        dumped([*NAMES, "UPPER"]),
        dumped(NAMES)[:-1] + b',"\\u0061"]',
        dumped(dict.fromkeys(NAMES, "a")),
        # No JSON.
        dumped(NAMES).replace(b'["', b'[a"'),
        dumped(NAMES).replace(b'"]', b'"a]'),
        dumped(NAMES).replace(b'","', b'"a,"', 1),
        dumped(NAMES).replace(b'","', b'",a"', 1),
        dumped(NAMES).replace(b'","', b'",-1,"', 1),
        dumped(NAMES).replace(b'","', b'"",', 1),
        dumped(NAMES)[:-1],
    ],
)
def test_all_else_is_to_be_read(raw: bytes) -> None:
    assert sent_names(Raw(raw)) is None


@pytest.mark.parametrize(
    ("names", "field", "what"),
    [
        ([*NAMES, 1], "NodeNames[40]", "Expected `str`, got `int`"),
        ("n1", "NodeNames", "Expected `array | null`, got `str`"),
        ([*NAMES, ["n1"]], "NodeNames[40]", "Expected `str`, got `array`"),
    ],
)
def test_what_are_no_names_is_said_where_it_is(names: Any, field: str, what: str) -> None:
    with pytest.raises(Problem) as caught:
        wire.read_filter_call(dumped({**filter_body(), "NodeNames": names}))
    assert (caught.value.field, caught.value.detail) == (field, what)


@pytest.mark.parametrize("taken", [NAMES, NAMES[:1], NAMES[::2], NAMES[::-1], []])
def test_an_answer_is_the_same_whether_they_were_read_or_not(taken: list[Any]) -> None:
    call = wire.read_filter_call(dumped(filter_body(names=NAMES)))
    assert isinstance(call.nodes, LazyNodeNames)
    read = wire.filter_answer(Verdict(taken), None)
    assert read == wire.filter_answer(Verdict(call.nodes if taken == NAMES else taken), None)
    assert json.loads(read)["NodeNames"] == taken


# -- cut out

BODY = dumped(filter_body(names=NAMES))
PIECES = [BODY[at:to] for at, to in ((0, 2), (0, 40), (40, 60), (60, -1), (-40, -1), (0, -1), (-1, None), (0, None))]
pieces = st.sampled_from(
    [*PIECES, b',"Nodes":null,"NodeNames":', dumped(NAMES), b'"', b"{", b"}", b"[", b"]", b"\\", b"a"]
)


def read_as_a_whole(body: bytes, read: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    with monkeypatch.context() as patched:
        patched.setattr(wire, "cut_out", lambda body: None)
        return answered(read, body)


def answered(read: Any, body: bytes) -> Any:
    try:
        call = read(body)
    except Problem as problem:
        return problem.status, problem.field, problem.detail
    return call.pod, list(call.nodes), call.sent


@pytest.mark.parametrize("read", [wire.read_filter_call, wire.read_prioritize_call])
@given(st.lists(pieces, max_size=5).map(b"".join) | st.just(BODY), st.data())
def test_cut_out_or_not_a_body_is_read_as_the_same_call_or_refused_in_the_same_words(
    read: Any, body: bytes, data: st.DataObject
) -> None:
    at, to = (data.draw(st.integers(0, len(body))) for _ in range(2))
    changed = data.draw(st.sampled_from([body, body[:at] + body[to:], body[:at] + data.draw(pieces) + body[at:]]))
    with pytest.MonkeyPatch.context() as monkeypatch:
        assert answered(read, changed) == read_as_a_whole(changed, read, monkeypatch)


@pytest.mark.parametrize(
    "before",
    [
        b"",
        b"[",
        b'{"a":"',
        b'{"a":{"b":1',
        b'{"a":[1',
        b'{"a":"\\"',
        b'{"NodeNames":["n1"],"a":1',
        b'{"Nodes":{"items":[]},"a":1',
        b'{"Pod":1',
    ],
)
def test_names_that_are_not_those_of_the_call_are_cut_out_to_no_effect(before: bytes) -> None:
    body = before + b',"Nodes":null,"NodeNames":' + dumped(NAMES) + b"}"
    assert cut_out(body) is not None
    for read in (wire.read_filter_call, wire.read_prioritize_call):
        with pytest.MonkeyPatch.context() as monkeypatch:
            assert answered(read, body) == read_as_a_whole(body, read, monkeypatch)


@pytest.mark.parametrize("body", [dumped(filter_body(names=[])), dumped(filter_body(names=NAMES), spaces=True), b""])
def test_names_that_are_elsewhere_or_few_are_read(body: bytes) -> None:
    assert cut_out(body) is None
