"""The schema of a kind whose whole meaning is its spec: what is written is what is read."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from extender.adapters.kubernetes.codecs.schema import Declaration, ObjectJson
from extender.app.contracts.kind import Declared, Identity, Replacement, Standing
from kubesim.apiserver.machinery.patches import merge

NAME = Identity("team", "a")


class Spec(Struct, frozen=True):
    title: str
    size: int | None = None
    labels: dict[str, str] | None = None
    parts: list[dict[str, int]] | None = None


SCHEMA = Declaration("Toy", "toys", Spec)
words = st.text("ab", max_size=2)
specs = st.builds(
    Spec,
    words,
    st.none() | st.integers(0, 3),
    st.none() | st.dictionaries(words, words, max_size=3),
    st.none() | st.lists(st.dictionaries(words, st.integers(0, 3), max_size=2), max_size=2),
)


def read(body: Any) -> Declared[Spec]:
    return SCHEMA.read(msgspec.json.decode(json.dumps(body), type=ObjectJson))


@given(specs)
def test_what_is_created_is_read_as_it_was(spec: Spec) -> None:
    item = Declared(NAME, spec, mark="m")
    assert read(SCHEMA.manifest(item)) == item


@given(specs, specs)
def test_a_patch_makes_the_one_spec_into_the_other(before: Spec, after: Spec) -> None:
    stored = SCHEMA.manifest(Declared(NAME, before))
    assert read(merge(stored, SCHEMA.patch(Replacement(before, after)))).spec == after


@given(specs)
def test_what_a_status_says_to_be_in_force_is_read_again(spec: Spec) -> None:
    item = Declared(NAME, Spec("x"))
    content, conditions = SCHEMA.status(item, Standing(False, "Bad", "", spec))
    assert read({**SCHEMA.manifest(item), "status": {**content, "observedGeneration": 3}}).in_force == spec
    assert conditions == {}


def test_a_status_of_which_we_can_make_no_sense_says_nothing() -> None:
    body = SCHEMA.manifest(Declared(NAME, Spec("x")))
    senseless: list[Any] = [{"inForce": {"title": 1}}, {"inForce": 7}, {"observedGeneration": "x"}, [], None]
    for status in senseless:
        assert read({**body, "status": status}) == Declared(NAME, Spec("x"))


def test_a_spec_that_cannot_be_read_is_a_problem_with_its_place() -> None:
    found = read({"metadata": {"name": "a", "namespace": "team"}, "spec": {"title": "x", "parts": [{"a": "many"}]}})
    assert (found.spec, found.problem) == (None, "spec.parts[0][...]: expected `int`, got `str`")
