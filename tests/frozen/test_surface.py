"""What users and other programs depend on is as recorded: a change is meant, recorded anew and in CHANGELOG.md."""

from __future__ import annotations

import json

import pytest

from tests.frozen.surface import RECORDED, surface, text, without_words


@pytest.mark.parametrize("part", sorted(json.loads(RECORDED.read_text())))
def test_is_as_recorded(part: str) -> None:
    recorded, found = json.loads(RECORDED.read_text()), json.loads(text())
    assert found[part] == recorded[part], "if this is meant: python -m tests.frozen.surface --write; CHANGELOG.md"


def test_no_part_is_missing_or_empty() -> None:
    assert surface().keys() == json.loads(RECORDED.read_text()).keys()
    assert all(surface().values())


def test_explanations_are_left_out_and_names_are_not() -> None:
    value = {"description": "words", "properties": {"title": {"type": "string", "title": "Title"}}}
    assert without_words(value) == {"properties": {"title": {"type": "string"}}}
