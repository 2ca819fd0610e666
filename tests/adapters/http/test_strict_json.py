"""JSON that not everybody reads alike, keys twice, halves of characters, other encodings: refused, and not stored."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.adapters.http.models.strict_json import MOST_VALUES, read_json
from extender.adapters.http.problems import Problem
from tests.adapters.http.fakes import NotedManagement, NotedVerbs, bind_body, filter_body, pod_json
from tests.adapters.http.told import problem

pytestmark = pytest.mark.anyio

RESOURCE = "/v1/namespaces/team-a/resources/data1"
TRANSACTIONS = "/v1/transactions"
JSON = {"content-type": "application/json"}
CLAIM = '{"op": "claim", "namespace": "a", "holder": "h", "node": "n", "units": {"cpu": 1}, "ttl_seconds": 1}'


async def sent(client: httpx.AsyncClient, path: str, body: str | bytes) -> dict[str, Any]:
    content = body.encode() if isinstance(body, str) else body
    method = "POST" if path == TRANSACTIONS else "PUT"
    return dict(problem(await client.request(method, path, content=content, headers=JSON), 400))


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (RESOURCE, '{"capacity": 1, "node_spec": "n1", "capacity": 2}', "capacity"),
        (RESOURCE, '{"capacity": 1, "node_spec": {"cpu": 1, "cpu": 2}}', "node_spec.cpu"),
        (RESOURCE, '{"capacity": 1, "c\\u0061pacity": 1}', "capacity"),
        (RESOURCE, '{"a": {"x": 1, "x": 2}, "a": {}}', "a"),
        (TRANSACTIONS, f'{{"operations": [{CLAIM}, {CLAIM[:-1]}, "op": "claim"}}]}}', "operations[1].op"),
        (TRANSACTIONS, '{"operations": [], "read": {"n1": 1, "n1": 2}}', "read.n1"),
    ],
)
async def test_a_key_that_is_there_twice_is_refused_and_named(
    client: httpx.AsyncClient, management: NotedManagement, path: str, body: str, field: str
) -> None:
    told = await sent(client, path, body)
    assert told["field"] == field
    assert told["detail"] == f"{field} occurs more than once"
    assert management.asked == []


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (RESOURCE, r'{"capacity": 1, "node_spec": "n\ud800"}', "node_spec"),
        (RESOURCE, r'{"capacity": 1, "node_spec": {"labels": {"zone": "\uDFFF"}}}', "node_spec.labels.zone"),
        (RESOURCE, r'{"capacity": 1, "node_spec": "n1", "owner": {"name": "\ude00\ud83d", "uid": "u"}}', "owner.name"),
        (RESOURCE, r'{"capacity": 1, "\ud83d": 1}', r"\ud83d"),
        (RESOURCE, r'"\ud800"', None),
        (TRANSACTIONS, f'{{"operations": [{CLAIM.replace("h", chr(92) + "ud800")}]}}', "operations[0].\\ud800older"),
        (TRANSACTIONS, r'{"operations": [{"op": "\ud800"}]}', "operations[0].op"),
    ],
)
async def test_half_a_character_is_refused_and_named(
    client: httpx.AsyncClient, management: NotedManagement, path: str, body: str, field: str | None
) -> None:
    told = await sent(client, path, body)
    assert told["field"] == field
    assert told["detail"] == f"{field or 'the body'} has half a surrogate pair, which is not a character"
    assert management.asked == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"capacity": 1, "node_spec": "n\xed\xa0\x80"}', "the body is not UTF-8: byte 0xed at 31"),
        (b'{"capacity": "\xff"}', "the body is not UTF-8: byte 0xff at 14"),
        ('{"capacity": 1}'.encode("utf-16"), "the body is not UTF-8: byte 0xff at 0"),
        ('{"capacity": 1}'.encode("utf-16-be"), "Expecting value at character 0"),
        (b"[" * 100_000, "the body is nested too deeply"),
        (b'{"capacity": ' + b"9" * 5000 + b"}", "a number in the body has too many digits"),
        (b'{"capacity": 1', "Expecting ',' delimiter at character 14"),
    ],
)
async def test_what_is_no_json_is_refused_in_words(
    client: httpx.AsyncClient, management: NotedManagement, body: bytes, said: str
) -> None:
    assert (await sent(client, RESOURCE, body))["detail"] == said
    assert management.asked == []


@pytest.mark.parametrize("wrong", [r'"\ud800"', '{"k": 1, "k": 2}'])
async def test_what_is_far_down_in_a_very_large_body_is_refused_without_its_name(
    client: httpx.AsyncClient, management: NotedManagement, wrong: str
) -> None:
    body = f'{{"capacity": [{"[]," * 15_000} [{wrong}]]}}'
    assert (await sent(client, RESOURCE, body))["detail"].startswith("the body ")
    assert management.asked == []


async def test_what_only_looks_like_half_a_character_is_none(
    client: httpx.AsyncClient, management: NotedManagement
) -> None:
    body = r'{"capacity": 1, "node_spec": {"labels": {"zone": "\\ud800"}}}'
    assert (await client.put(RESOURCE, content=body, headers=JSON)).status_code == 200
    assert management.asked[0].choice.labels == {"zone": r"\ud800"}


async def test_a_whole_pair_is_a_character_like_any_other(
    client: httpx.AsyncClient, management: NotedManagement
) -> None:
    body = r'{"capacity": 1, "node_spec": {"labels": {"zone": "\ud83d\ude00"}}}'
    assert (await client.put(RESOURCE, content=body, headers=JSON)).status_code == 200
    assert management.asked[0].choice.labels == {"zone": "😀"}


async def test_a_byte_order_mark_is_passed_over(client: httpx.AsyncClient) -> None:
    body = '\ufeff{"capacity": 1, "node_spec": "n1"}'.encode()
    assert (await client.put(RESOURCE, content=body, headers=JSON)).status_code == 200


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
)


@given(value=VALUES, ascii_only=st.booleans())
def test_whatever_can_be_written_is_read_as_it_was(value: Any, ascii_only: bool) -> None:
    assert read_json(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


@given(value=VALUES, where=st.randoms(use_true_random=False), half=st.characters(categories=["Cs"]))
def test_half_a_character_is_found_wherever_it_is(value: Any, where: Any, half: str) -> None:
    at = where.choice(["value", "key", "list"])
    hidden = {"value": {"a": [value, half]}, "key": {"a": {half: value}}, "list": [[value], [[half]]]}[at]
    with pytest.raises(Problem, match="half a surrogate pair") as refused:
        read_json(json.dumps(hidden).encode())
    refused.value.body()


# -- kube-scheduler's verbs: Go writes neither, and reads the last of two keys as msgspec does


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("filter", filter_body(names=["n\ud800"])),
        ("filter", filter_body(pod_json(metadata={"name": "p\udc00", "namespace": "n", "uid": "u"}))),
        ("filter", filter_body(pod_json(metadata={"name": "p", "namespace": "n", "uid": "\ud800"}))),
        ("filter", {"Pod": pod_json(), "Nodes": {"items": [{"metadata": {"name": "\ud800"}}]}, "NodeNames": None}),
        ("prioritize", filter_body(names=["\udfff"])),
        ("bind", bind_body(Node="n\ud800")),
        ("bind", bind_body(PodName="\ud800\ud800")),
        ("bind", bind_body(PodUID="\udc00")),
        ("preempt", {"Pod": pod_json(), "NodeNameToVictims": None, "NodeNameToMetaVictims": {"\ud800": None}}),
    ],
)
async def test_half_a_character_in_a_verb_is_refused_and_goes_nowhere(
    client: httpx.AsyncClient, verbs: NotedVerbs, verb: str, body: object
) -> None:
    escaped = json.dumps(body).encode()
    raw = json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")
    for content in (escaped, raw):
        told = problem(await client.post(f"/scheduler/{verb}", content=content), 400)
        assert told["title"] in ("The body is not JSON", "The body has the wrong structure")
    assert verbs.calls == []


async def test_of_two_equal_keys_a_verb_takes_the_last(client: httpx.AsyncClient, verbs: NotedVerbs) -> None:
    body = json.dumps(filter_body(names=["n1"])).encode()[:-1] + b', "NodeNames": ["n2"]}'
    assert (await client.post("/scheduler/filter", content=body)).json()["NodeNames"] == ["n2"]
    assert verbs.calls[0][2] == ["n2"]


# -- bytes that are no characters, in addresses and headers


@pytest.mark.parametrize("octets", ["%FF", "%ED%A0%80", "%C0%80", "%00", "%"])
@pytest.mark.parametrize(
    "path",
    [
        "/v1/namespaces/{}/resources",
        "/v1/namespaces/team-a/resources/{}",
        "/v1/namespaces/team-a/gangs/{}",
        "/v1/namespaces/team-a/gangs/{}/explain",
        "/v1/namespaces/{}/pods/p/explain",
        "/v1/namespaces/team-a/pods/{}/explain",
        "/v1/cluster-state?namespace={}",
        "/v1/cluster-state?node={}",
        "/v1/cluster-state?resource={}",
        "/v1/cluster-state?continue={}",
        "/v1/cluster-state?limit={}",
        "/scheduler/{}",
        "/{}",
    ],
)
async def test_octets_that_are_no_characters_are_refused_in_addresses(
    client: httpx.AsyncClient, path: str, octets: str
) -> None:
    method = "POST" if path.startswith("/scheduler") else "GET"
    answer = await client.request(method, path.format(octets))
    assert answer.status_code in (404, 422)
    problem(answer, answer.status_code)


@pytest.mark.parametrize("name", ["Escher-Node", "If-Match", "If-None-Match"])
@pytest.mark.parametrize("value", [b"\xff", b"\xed\xa0\x80", "é".encode()])
async def test_octets_that_are_no_characters_are_harmless_in_headers(
    client: httpx.AsyncClient, name: str, value: bytes
) -> None:
    headers = {b"content-type": b"application/json", name.encode(): value}
    answer = await client.put(RESOURCE, content=b'{"capacity": 1, "node_spec": "n1"}', headers=headers)
    assert answer.status_code in (200, 422)


@pytest.mark.parametrize("charset", [b"latin-1", b"\xff"])
async def test_a_charset_that_is_announced_changes_nothing(client: httpx.AsyncClient, charset: bytes) -> None:
    body = '{"capacity": 1, "node_spec": {"labels": {"zone": "é"}}}'.encode()
    headers = {b"content-type": b"application/json; charset=" + charset}
    answer = await client.put(RESOURCE, content=body, headers=headers)
    assert answer.status_code == 200


@pytest.mark.parametrize("bracket", ["[]", "{}"])
def test_whatever_its_depth_half_a_pair_is_refused(bracket: str) -> None:
    """What can just be read is nested too deeply to be written."""
    opening = bracket[0] + ('"a":' if bracket == "{}" else "")
    for depth in range(900, 1100):
        with pytest.raises(Problem):
            read_json((opening * depth + '"\\ud800"' + bracket[1] * depth).encode())


def test_a_body_of_more_values_than_anybody_sends_is_refused_unread() -> None:
    assert len(read_json(b"[" + b"0," * MOST_VALUES + b"0]")) == MOST_VALUES + 1
    with pytest.raises(Problem, match="more than 20000 values") as refused:
        read_json(b"[" + b"{}," * (MOST_VALUES + 1) + b"{}]")
    assert refused.value.status == 413
