"""What both extenders are asked over HTTP, and what counts as an answer."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from random import Random
from typing import Any

import pytest

from extender.shipped.errors import ClusterError
from loadtests.goals import http_verbs
from loadtests.goals.http_verbs import AT_REST, LARGEST, NODE_BYTES, ONE_FEASIBLE, Asked, questions, settled
from loadtests.goals.measuring.connection import Answer, Connection, request
from loadtests.goals.measuring.rows import BY_NAME, HTTP, MEMORY_AFTER

Json = dict[str, Any]
ASKED = (*AT_REST, ONE_FEASIBLE)
NAMES, SCORES = AT_REST[0], AT_REST[2]


def body(asked: bytes) -> Json:
    found: Json = json.loads(asked.partition(b"\r\n\r\n")[2])
    return found


def names(asked: Json) -> list[str]:
    return asked["NodeNames"] or [node["metadata"]["name"] for node in asked["Nodes"]["items"]]


def test_every_row_over_http_is_measured() -> None:
    measured = {each.row for each in (*ASKED, LARGEST)} | {MEMORY_AFTER}
    assert measured == {row.name for row in BY_NAME.values() if row.measure == HTTP}


@pytest.mark.parametrize("asked", ASKED, ids=lambda each: each.row)
def test_each_question_is_about_a_pod_that_nobody_has_seen_and_as_many_nodes_as_it_says(asked: Asked) -> None:
    question = questions(asked, Random(1))
    first, second = body(question()), body(question())
    assert first["Pod"]["metadata"]["uid"] != second["Pod"]["metadata"]["uid"]
    assert len(set(names(first))) == len(names(first)) == asked.nodes
    assert names(first) != names(second)


def test_one_node_is_feasible_for_a_pod_that_asks_for_what_one_has() -> None:
    (container,) = body(questions(ONE_FEASIBLE, Random(1))())["Pod"]["spec"]["containers"]
    assert container["resources"]["requests"]["escher.dev/default.data1"] == "1"


def test_a_whole_node_is_as_large_as_a_kubelets() -> None:
    nodes = http_verbs.whole_nodes(AT_REST[4].call, Random(1))
    assert all(NODE_BYTES <= len(node) < 1.1 * NODE_BYTES for node in nodes)
    assert len({json.loads(node)["metadata"]["name"] for node in nodes}) == len(nodes) == 5000


# -- what is answered ------------------------------------------------------------------------------------------------


def filtered(count: int, error: str = "") -> Answer:
    said: Json = {"NodeNames": [f"node-{n}" for n in range(count)], "Nodes": None, "FailedNodes": {}, "Error": error}
    return Answer(200, json.dumps(said).encode())


def test_both_leave_the_same_nodes_and_as_many_as_there_should_be() -> None:
    NAMES.check(filtered(500), filtered(500))
    with pytest.raises(ClusterError, match="filter 500 names: the service answers with 499 nodes and the reference"):
        NAMES.check(filtered(499), filtered(500))
    with pytest.raises(ClusterError, match="with 400 nodes"):
        NAMES.check(filtered(400), filtered(400))


def test_whole_nodes_that_pass_are_read_by_their_names() -> None:
    said: Json = {"Nodes": {"items": [{"metadata": {"name": "n1"}, "spec": {}}]}, "NodeNames": None, "Error": ""}
    assert http_verbs.passed(Answer(200, json.dumps(said).encode())) == ["n1"]


def test_scores_of_zero_may_be_left_out_by_us_and_by_nobody_else() -> None:
    none, all_of_them = Answer(200, b"[]"), json.dumps([{"Host": f"node-{n}", "Score": 1} for n in range(500)])
    SCORES.check(none, Answer(200, all_of_them.encode()))
    with pytest.raises(ClusterError, match="the reference with 0 nodes"):
        SCORES.check(none, none)


@pytest.mark.parametrize("wrong", [Answer(503, b"busy"), Answer(200, b"busy"), filtered(500, "no")])
def test_what_is_no_answer_does_not_count_as_a_fast_one(wrong: Answer) -> None:
    with pytest.raises(ClusterError, match="answered with"):
        NAMES.check(wrong, filtered(500))
    with pytest.raises(ClusterError, match="answered with"):
        NAMES.check(filtered(500), wrong)


# -- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("readings", "found"),
    [([100.0, 100.0], 100.0), ([300.0, 200.0, 110.0, 110.0], 110.0), ([100.0, 130.0], 130.0)],
    ids=["at rest", "falls for a while", "rises"],
)
def test_memory_is_read_when_it_has_stopped_to_fall(readings: list[float], found: float) -> None:
    left, slept = iter(readings), list[float]()
    assert settled(lambda: next(left), slept.append) == found
    assert len(slept) == len(readings) - 1


def test_memory_that_falls_and_falls_is_read_in_the_end() -> None:
    left = iter(100.0 / 2**n for n in range(100))
    assert settled(lambda: next(left), lambda seconds: None) == 100.0 / 2**9


# -- the connection --------------------------------------------------------------------------------------------------


@contextmanager
def serving(*parts: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """Says each of these after a request, and then no more. Its URL, and what it heard."""
    heard: list[bytes] = []

    def serve() -> None:
        with listening.accept()[0] as there:
            for part in parts:
                heard.append(there.recv(1 << 16))
                there.sendall(part)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", heard
        thread.join(10)


def test_a_connection_is_kept_and_a_request_is_sent_in_one_piece() -> None:
    whole = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]"
    chunked = b"HTTP/1.1 400 Bad\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n\r\n"
    asked = request("/scheduler/filter", b"{}")
    with serving(whole, chunked) as (url, heard), closing(Connection(url)) as connection:
        assert connection.ask(asked) == (200, b"[]")
        assert connection.ask(asked) == (400, b"{")
    assert heard == [asked, asked]
    assert asked.startswith(b"POST /scheduler/filter HTTP/1.1\r\nHost: ")
    assert asked.endswith(b"Content-Length: 2\r\n\r\n{}")


def test_half_an_answer_is_none() -> None:
    half = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n[]"
    with serving(half) as (url, _), closing(Connection(url)) as connection:
        asked = request("/scheduler/filter", b"{}")
        with pytest.raises(ConnectionResetError, match="before the answer's end"):
            connection.ask(asked)
