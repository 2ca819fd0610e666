"""TransactionIntents: read as they were written, bounded in size; and what an earlier version stored on objects that
tenants write is neither believed nor looked into."""

from __future__ import annotations

import asyncio
import tracemalloc
import zlib
from base64 import b64encode
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from extender.adapters.kubernetes.codecs.intents import LARGEST_INTENT, TransactionIntents
from extender.adapters.kubernetes.codecs.resources import MADE, POLICY, to_json, to_resource
from extender.adapters.kubernetes.codecs.schema import MARK, ObjectJson
from extender.adapters.kubernetes.codecs.store import ApiIntentStore
from extender.app.contracts.kind import Declared, Identity, Replacement
from extender.app.contracts.ports import EphemeralResource, Former, Intent, MadeChoice, NodeChoice, PodOwner
from extender.app.resources.reconciler import digest, is_same_state
from extender.core.names import FORMER_INTENT, EphemeralName
from extender.kube.errors import Refused
from extender.kube.names import NodeName, PodUid, ResourceKey
from extender.shipped.crds import shipped_definitions
from tests.doctor.called import Noted

NAME = Identity("escher-system", "transaction-0123456789abcdef")
SCHEMA = TransactionIntents()
FORMER = EphemeralResource(
    EphemeralName("team", "a"),
    {NodeName("n1"): 4},
    owner=PodOwner("worker", PodUid("u1")),
    expires_at=1795240800.123456,
    made=MadeChoice(4, NodeChoice(limit=1), (NodeName("n1"),)),
    mark="abc",
)
BY_KUBECTL = EphemeralResource(
    EphemeralName("other", "b", shared=True),
    {},
    capacity=3,
    choice=NodeChoice(available={ResourceKey("cpu"): 1500}, limit=2),
)
INTENT = Intent(
    (Former(Identity("team", "a"), FORMER, True), Former(Identity("other", "b"), BY_KUBECTL), Former(NAME, None))
)


def through(intent: Intent) -> Declared[Intent]:
    return read(SCHEMA.manifest(Declared(NAME, intent)))


def read(manifest: Any) -> Declared[Intent]:
    return SCHEMA.read(msgspec.json.decode(msgspec.json.encode(manifest), type=ObjectJson))


def test_an_intent_is_read_as_it_was_written_over_namespaces() -> None:
    for intent in (INTENT, replace(INTENT, given_up=True)):
        found = through(intent)
        assert (found.name, found.spec, found.problem) == (NAME, intent, "")


def test_to_give_one_up_says_one_thing() -> None:
    change = Replacement(INTENT, replace(INTENT, given_up=True))
    assert SCHEMA.patch(change) == {"spec": {"givenUp": True}}


def test_what_was_is_the_same_state_as_what_is() -> None:
    for each in (FORMER, BY_KUBECTL, replace(FORMER, expires_at=1795240800.1234567)):
        found = through(Intent((Former(Identity("team", each.name.name), each),))).spec
        assert found is not None
        [former] = found.formers
        assert former.resource is not None
        assert is_same_state(former.resource, each)
        assert digest(each) == digest(former.resource)


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"objects": "a"},
        {"objects": [{"name": "a"}]},
        {"objects": [{"namespace": "a", "name": "a"}] * 1001},
        {"objects": [{"namespace": "a", "name": "a", "was": {}}]},
    ],
)
def test_what_does_not_make_sense_is_a_problem_and_no_intent(spec: Any) -> None:
    found = read({"metadata": {"name": NAME.name, "namespace": NAME.namespace}, "spec": spec})
    assert found.spec is None
    assert found.problem.startswith("spec")


def test_one_that_is_too_large_is_refused_before_anything_is_written() -> None:
    large = replace(FORMER, nodes={NodeName(f"node-{number:05}.zone-a.example.com"): 4 for number in range(5000)})
    formers = tuple(Former(Identity("team", f"r{number}"), large) for number in range(10))
    noted = Noted()
    store, empty = ApiIntentStore(noted), Intent(())
    with pytest.raises(Refused, match=f"the limit is {LARGEST_INTENT:,}") as told:
        asyncio.run(store.merge(NAME, Replacement(empty, Intent(formers))))
    assert told.value.status == 413
    assert noted.called == set()
    asyncio.run(store.merge(NAME, Replacement(empty, Intent(formers[:4]))))
    assert noted.called == {("escher.dev", "transactionintents", "patch")}


def test_the_definition_lets_through_all_that_an_object_may_have_been() -> None:
    """What it does not have the API server leaves out, and the object would be made again without."""

    def properties(kind: str, *path: str) -> dict[str, Any]:
        [definition] = (each for each in shipped_definitions() if each["spec"]["names"]["kind"] == kind)
        found = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        for step in path:
            found = found[step]
        return {name: each["type"] for name, each in found["properties"].items()}

    was = ("properties", "objects", "items", "properties", "was", "properties", "spec")
    theirs = properties("EphemeralResource")
    # It is written as the moment that it means.
    del theirs["ttlSeconds"]
    assert properties("TransactionIntent", *was) == theirs
    for inner in ("nodeSpec", "owner"):
        of_theirs = properties("EphemeralResource", "properties", inner)
        assert properties("TransactionIntent", *was, "properties", inner) == of_theirs


# -- what tenants may write


def annotated(name: str, annotations: dict[str, str], spec: Any = None) -> EphemeralResource:
    made = to_json(EphemeralResource(EphemeralName("team", name), {}))
    made["metadata"]["annotations"] = annotations
    made["spec"] = spec or {"nodes": {}}
    return to_resource(msgspec.json.decode(msgspec.json.encode(made), type=ObjectJson))


BOMB = b64encode(zlib.compress(b'{"transaction":"' + b"a" * (60 << 20) + b'","objects":[],"deciding":"x"}', 9)).decode()


@pytest.mark.parametrize("text", ["{}", "not base64!", BOMB], ids=["short", "senseless", "a bomb"])
def test_the_former_form_is_no_resource_says_so_and_is_not_looked_into(text: str) -> None:
    tracemalloc.start()
    try:
        found = annotated("transaction-0123456789abcdef", {FORMER_INTENT: text})
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 4 * len(text) + 100_000
    assert found.desired() == {}
    for said in (FORMER_INTENT, "begins with 0123456789abcdef.", "delete this one", "docs/upgrade.md"):
        assert said in found.problem


def test_who_writes_that_annotation_on_a_resource_has_a_resource() -> None:
    assert annotated("data", {FORMER_INTENT: "{}"}).problem == ""
    assert annotated("transaction-1", {FORMER_INTENT: "{}"}, {"nodes": {"n1": 1}}).desired() == {"n1": 1}
    assert annotated("transaction-1", {}).problem == ""


def test_of_annotations_no_more_is_kept_than_we_would_have_written() -> None:
    long = "x" * 200_000
    choice = msgspec.json.encode({"capacity": 1, "nodeSpec": {}, "nodes": ["n"] * 50_000}).decode()
    found = annotated("data", {MARK: long, POLICY: long, MADE: choice})
    assert (found.mark, found.policy, found.made) == ("", "", None)


def test_what_is_wrong_with_an_object_is_said_in_few_words() -> None:
    assert len(annotated("data", {}, {"nodes": {"x" * 100_000: -1}}).problem) <= 1000
