"""Intents as annotations: read as they were written, short or long, and believed only about their own namespace."""

from __future__ import annotations

import zlib
from base64 import b64encode
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from extender.adapters.kube.resources import INTENT, to_json, to_resource
from extender.adapters.kube.schema import ObjectJson
from extender.app.ephemeral_resources import digest, is_same_state
from extender.app.ports import EphemeralResource, Former, Intent, MadeChoice, NodeChoice, PodOwner
from extender.core.names import EphemeralName
from extender.kube.names import NodeName, PodUid, ResourceKey

NAME = EphemeralName("team", "transaction-1")
FORMER = EphemeralResource(
    EphemeralName("team", "a"),
    {NodeName("n1"): 4},
    owner=PodOwner("worker", PodUid("u1")),
    expires_at=1795240800.123456,
    made=MadeChoice(4, NodeChoice(limit=1), (NodeName("n1"),)),
    mark="abc",
)
BY_KUBECTL = EphemeralResource(
    EphemeralName("team", "b", shared=True),
    {},
    capacity=3,
    choice=NodeChoice(available={ResourceKey("cpu"): 1500}, limit=2),
)


def through(resource: EphemeralResource) -> EphemeralResource:
    return to_resource(msgspec.json.decode(msgspec.json.encode(to_json(resource)), type=ObjectJson))


def annotated(text: Any) -> EphemeralResource:
    made = to_json(EphemeralResource(NAME, {}))
    made["metadata"]["annotations"] = {INTENT: text}
    return to_resource(msgspec.json.decode(msgspec.json.encode(made), type=ObjectJson))


def test_an_intent_is_read_as_it_was_written() -> None:
    formers = (Former("a", FORMER, True), Former("b", BY_KUBECTL), Former("c", None))
    for intent in (
        Intent("1", formers, others=("other", "third")),
        Intent("1", formers, deciding="other", given_up=True),
    ):
        found = through(EphemeralResource(NAME, {}, intent=intent))
        assert (found.intent, found.problem, found.desired()) == (intent, "", {})


def test_what_was_is_the_same_state_as_what_is() -> None:
    for each in (FORMER, BY_KUBECTL, replace(FORMER, expires_at=1795240800.1234567)):
        found = through(EphemeralResource(NAME, {}, intent=Intent("1", (Former(each.name.name, each),))))
        assert found.intent is not None
        [former] = found.intent.formers
        assert former.resource is not None
        assert is_same_state(former.resource, through(each))
        assert digest(each) == digest(former.resource)


def test_one_of_thousands_of_nodes_fits_into_an_annotation() -> None:
    large = replace(FORMER, nodes={NodeName(f"node-{number:05}.zone-a.example.com"): 4 for number in range(5000)})
    intent = Intent(
        "1",
        tuple(Former(f"r{number}", replace(large, name=EphemeralName("team", f"r{number}"))) for number in range(10)),
    )
    text = to_json(EphemeralResource(NAME, {}, intent=intent))["metadata"]["annotations"][INTENT]
    assert len(text) < 256 * 1024
    assert through(EphemeralResource(NAME, {}, intent=intent)).intent == intent


def test_it_speaks_of_no_other_namespace() -> None:
    """Whoever may write in one namespace must not move us to write in another."""
    foreign = to_json(replace(FORMER, name=EphemeralName("victim", "a")))
    said = {"transaction": "1", "objects": [{"name": "a", "deletes": True, "was": foreign}]}
    intent = annotated(msgspec.json.encode(said).decode()).intent
    assert intent is not None
    assert intent.formers[0].resource is not None
    assert intent.formers[0].resource.name == EphemeralName("team", "a")


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"transaction":1,"objects":[]}',
        '{"transaction":"1","objects":[{"name":"a","was":{"metadata":{}}}]}',
        "not base64!",
        b64encode(b"not compressed").decode(),
        b64encode(zlib.compress(b"not json")).decode(),
        b64encode(zlib.compress(b"\xff\xfe")).decode(),
        b64encode(
            zlib.compress(b'{"transaction":"1","objects":[' + b'{"name":"a"},' * 1000 + b'{"name":"a"}]}')
        ).decode(),
        '{"transaction":"1","objects":[],"others":[' + '"a",' * 1000 + '"a"]}',
    ],
)
def test_what_we_have_not_written_is_no_intent(text: str) -> None:
    assert annotated(text).intent is None


def test_what_unpacks_to_more_than_anybody_has_written_is_no_intent() -> None:
    assert annotated(b64encode(zlib.compress(b" " * 2**27)).decode()).intent is None
