"""A head that came before means what it meant then; whatever is not to the byte like it is for the parser."""

from __future__ import annotations

import pytest

from extender.adapters.http.server.head_cache import HeadCache

HEAD = b"POST /scheduler/filter HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


def whole(body: bytes, head: bytes = HEAD) -> bytes:
    return head % len(body) + body


@pytest.fixture
def heads() -> HeadCache:
    known = HeadCache()
    known.remember(whole(b"{}"), "POST", "/scheduler/filter")
    return known


@pytest.mark.parametrize("body", [b"", b"{}", b'{"Pod": 1}', b"x" * 70_000, b"a\r\n\r\nContent-Length: 9\r\n\r\n"])
def test_with_a_head_that_came_before_the_body_is_all_that_is_new(heads: HeadCache, body: bytes) -> None:
    assert heads.read(whole(body)) == ("POST", "/scheduler/filter", body)


def test_nothing_is_understood_that_no_parser_has_understood_before() -> None:
    assert HeadCache().read(whole(b"{}")) is None


def test_wherever_a_request_is_cut_it_is_not_the_request(heads: HeadCache) -> None:
    request = whole(b'{"Pod": {}}')
    assert [at for at in range(len(request)) if heads.read(request[:at]) is not None] == []
    assert [at for at in range(1, len(request)) if heads.read(request[at:]) is not None] == []


def test_each_byte_of_a_head_but_those_of_its_length_counts(heads: HeadCache) -> None:
    request = whole(b"{}")
    for at in range(len(request) - len(b"2\r\n\r\n{}")):
        assert heads.read(request[:at] + bytes([request[at] ^ 1]) + request[at + 1 :]) is None


@pytest.mark.parametrize(
    "request_",
    [
        whole(b"{}") + b"P",
        whole(b"{}") * 2,
        whole(b"{}").replace(b": 2", b": +2"),
        whole(b"{}").replace(b": 2", b": -2"),
        whole(b"{}").replace(b": 2", b": 2 "),
        whole(b"{}").replace(b": 2", b":  2"),
        whole(b"{}").replace(b": 2", b": 2, 2"),
        whole(b"{}").replace(b": 2", b": 2_"),
        whole(b"{}").replace(b": 2", b": 0x2"),
        whole(b"{}").replace(b": 2", ": \N{ARABIC-INDIC DIGIT TWO}".encode()),
        whole(b"{}").replace(b": 2", b": "),
        whole(b"{}").replace(b": 2", b": 0000000002"),
        whole(b"{}").replace(b"\r\n\r\n", b"\r\nContent-Length: 2\r\n\r\n"),
        whole(b"{}").replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n"),
        whole(b"{}").replace(b"\r\n\r\n", b"\n\n"),
        b"\r\n" + whole(b"{}"),
        b"",
        b"\r\n\r\n",
    ],
)
def test_what_is_otherwise_is_left_to_the_parser(heads: HeadCache, request_: bytes) -> None:
    assert heads.read(request_) is None


@pytest.mark.parametrize(
    "head",
    [
        HEAD.replace(b"Host", b"content-length: 2\r\nHost"),
        HEAD.replace(b"\r\n\r\n", b"\r\ncontent-LENGTH: 2\r\n\r\n"),
        HEAD.replace(b"Host", b"Transfer-Encoding: chunked\r\nHost"),
        HEAD.replace(b"Host", b"Upgrade: h2c\r\nHost"),
        HEAD.replace(b"Host", b"Expect: 100-continue\r\nHost"),
        HEAD.replace(b"Host", b"X: a\n\nHost"),
        HEAD.replace(b"Host", b"X: a\rHost"),
        HEAD.replace(b"Host", b"X: " + b"a" * 3000 + b"\r\nHost"),
        HEAD.replace(b"Content-Length", b"content-length"),
    ],
)
def test_heads_that_are_not_as_simple_as_those_of_kube_scheduler_are_not_remembered(head: bytes) -> None:
    heads = HeadCache()
    heads.remember(whole(b"{}", head), "POST", "/scheduler/filter")
    assert heads.read(whole(b"{}", head)) is None


def test_two_heads_that_differ_in_digits_elsewhere_are_two() -> None:
    heads = HeadCache()
    one, other = (HEAD.replace(b"Host: x", b"Host: x%d" % number) for number in (1, 2))
    heads.remember(whole(b"{}", one), "POST", "/one")
    heads.remember(whole(b"{}", other), "POST", "/other")
    found = [heads.read(whole(b"[]", head)) for head in (one, other)]
    assert [each and each.path for each in found] == ["/one", "/other"]


def test_however_many_heads_there_are_few_are_remembered() -> None:
    heads = HeadCache()
    made = [HEAD.replace(b"Host: x", b"Host: x%d" % number) for number in range(1000)]
    for head in made:
        heads.remember(whole(b"{}", head), "POST", "/")
        assert heads.read(whole(b"{}", head)) is not None
    assert 0 < sum(heads.read(whole(b"{}", head)) is not None for head in made) <= 64
