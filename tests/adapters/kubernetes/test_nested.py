"""Objects that their authors nest deeply: the API server takes them, and they spoil nothing beside themselves."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from extender.adapters.kubernetes.codecs import kinds
from extender.adapters.kubernetes.codecs.policies import Policies
from extender.adapters.kubernetes.codecs.resources import MADE
from extender.adapters.kubernetes.codecs.store import ApiObjectStore, ApiResourceStore
from extender.core.cluster import Pod
from extender.core.names import EphemeralName
from tests.adapters.kubernetes.scripted_api import ScriptedApi

DEPTHS = [900, 5000, 9990]


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


def pod(name: str, depth: int) -> str:
    """Its author has set the fields' managers."""
    managed = f'"managedFields":[{{"manager":"me","fieldsV1":{{"f:a":{nested(depth)}}}}}]'
    metadata = f'{{"name":"{name}","namespace":"team","uid":"u-{name}","resourceVersion":"7",{managed}}}'
    return f'{{"metadata":{metadata},"spec":{{"nodeName":"n1","containers":[]}},"status":{{}}}}'


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_pod_is_read_as_any_other_in_a_list_and_in_a_watch(depth: int) -> None:
    kind = kinds.pods(60.0)
    page = f'{{"metadata":{{"resourceVersion":"9"}},"items":[{pod("a", 1)},{pod("b", depth)},{pod("c", 1)}]}}'
    found = kind.read_page(page.encode())
    assert [each.name for each in found.items] == ["a", "b", "c"]
    assert (found.unreadable, found.version) == ([], "9")
    for what in ("ADDED", "MODIFIED", "DELETED"):
        event = kind.read_event(f'{{"type":"{what}","object":{pod("b", depth)}}}'.encode())
        assert isinstance(event.item, Pod)
        assert (event.type, event.version, event.item.name, event.item.node) == (what, "7", "b", "n1")


def policy(depth: int) -> bytes:
    """Who may write its status writes any value there."""
    parameters = f'{{"spread":{nested(depth)}}}'
    spec = f'{{"type":"balance","parameters":{parameters}}}'
    metadata = '{"name":"p","namespace":"team","uid":"u","resourceVersion":"7"}'
    return f'{{"metadata":{metadata},"spec":{spec},"status":{{"inForce":{spec}}}}}'.encode()


@pytest.mark.parametrize("depth", [40, *DEPTHS])
def test_of_a_policy_no_more_levels_are_kept_than_any_code_goes_down(depth: int) -> None:
    async def course() -> None:
        store = ApiObjectStore(api, Policies())
        for found in (await store.get(EphemeralName("team", "p")), page.items[0], event.item):
            assert found is not None
            assert found.in_force is not None
            for said in (found.spec, found.in_force):
                assert json.dumps(said and dict(said.parameters)).count("[") <= 32

    api, kind = ScriptedApi(), kinds.ours(Policies())
    api.answers.append(policy(depth))
    page = kind.read_page(b'{"metadata":{"resourceVersion":"9"},"items":[' + policy(depth) + b"]}")
    event = kind.read_event(b'{"type":"ADDED","object":' + policy(depth) + b"}")
    asyncio.run(course())


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize(
    "text", ['{{"x":{0}}}', '{{"capacity":{0}}}', "{0}", '{{"capacity":1,"nodeSpec":{{"x":{0}}}}}']
)
def test_an_annotation_that_we_read_is_none_of_ours(depth: int, text: str) -> None:
    """The API server does not look into it; an object is read for its owner's calls, and when it is collected."""
    metadata: dict[str, Any] = {"name": "a", "namespace": "team", "uid": "u", "resourceVersion": "7"}
    metadata["annotations"] = {MADE: text.format(nested(depth))}
    said = json.dumps({"metadata": metadata, "spec": {"nodes": {"n1": 1}}}).encode()
    api = ScriptedApi()
    api.answers.append(said)
    found = asyncio.run(ApiResourceStore(api).get(EphemeralName("team", "a")))
    assert found.desired() == {"n1": 1}
    assert found.made is None or found.made.nodes == ()
