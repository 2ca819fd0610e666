"""JSON that is nested more deeply than a decoder goes is read all the same, without what is too deep."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.kube.nesting import DEEPEST, Decoder, shallow

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=20,
)


class Inner(msgspec.Struct):
    name: str


class Outer(msgspec.Struct):
    name: str
    after: Inner


def without_the_deep(value: Any, deepest: int) -> Any:
    if not isinstance(value, list | dict):
        return value
    if not deepest:
        return None
    if isinstance(value, list):
        return [without_the_deep(each, deepest - 1) for each in value]
    return {key: without_the_deep(each, deepest - 1) for key, each in value.items()}


@given(JSON, st.integers(1, 4), st.sampled_from([None, 1]), st.booleans())
def test_what_is_too_deep_becomes_null_and_nothing_else_changes(
    value: Any, deepest: int, indent: int | None, ascii_only: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode()
    assert json.loads(shallow(text, deepest)) == without_the_deep(value, deepest)


@pytest.mark.parametrize("text", [b"", b"[", b"[[[", b"]", b'{"a', b'"[', b"[" * 200, b"[" * 200 + b"]" * 50])
def test_what_is_no_json_stays_none(text: bytes) -> None:
    with pytest.raises(json.JSONDecodeError):
        json.loads(shallow(text))


@pytest.mark.parametrize("depth", [DEEPEST - 2, DEEPEST + 1, 1000, 10_000, 100_000])
@pytest.mark.parametrize(("opens", "closes"), [("[", "]"), ('{"a":', "}")])
def test_every_depth_is_decoded(depth: int, opens: str, closes: str) -> None:
    text = f'{{"name":"x","more":{opens * depth}1{closes * depth},"after":{{"name":"y"}}}}'
    found = Decoder(Outer).decode(text)
    assert (found.name, found.after.name) == ("x", "y")


def test_what_is_no_json_at_all_is_a_decoding_error() -> None:
    with pytest.raises(msgspec.DecodeError):
        Decoder(dict).decode("[" * 100_000)
