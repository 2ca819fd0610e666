"""What a pod says about its gang: every form, and every way of getting it wrong."""

from __future__ import annotations

import pytest

from extender.core.cluster import Owner
from extender.core.gang_ask import GangAsk, GroupAsk, MalformedAsk, read_gang_ask
from extender.core.names import GangKey

LABEL = "escher.dev/gang"
MIN = "escher.dev/gang-min-member"
TIMEOUT = "escher.dev/gang-timeout-seconds"
HTTP_TIMEOUT = 60.0
TRAIN = Owner("Job", "train", "u1", "batch")


def read(
    label: str | None = None,
    members: str | None = None,
    timeout: str | None = None,
    controller: Owner | None = None,
    longest_wait: float = HTTP_TIMEOUT,
) -> GangAsk | GroupAsk | MalformedAsk | None:
    labels = {} if label is None else {LABEL: label}
    annotations = {key: value for key, value in {MIN: members, TIMEOUT: timeout}.items() if value is not None}
    return read_gang_ask("team-a", labels, annotations, controller, longest_wait=longest_wait)


def test_a_pod_that_says_nothing_is_in_no_gang() -> None:
    assert read() is None
    assert read(timeout="30", controller=TRAIN) is None


def test_label_and_quorum_make_a_gang_of_this_namespace_that_waits_30_seconds() -> None:
    assert read("train", "8") == GangAsk(GangKey("team-a", "train"), 8, 30.0)
    assert read("train", "8", "59") == GangAsk(GangKey("team-a", "train"), 8, 59.0)


def test_one_annotation_in_a_jobs_template_is_enough() -> None:
    ask = read(members="8", controller=Owner("Job", "train.v2", "u1", "batch"))
    assert ask == GangAsk(GangKey("team-a", "job.train.v2", "batch", "u1"), 8, 30.0)
    assert read("other", "8", controller=TRAIN) == GangAsk(GangKey("team-a", "other"), 8, 30.0)


def test_controllers_of_different_kinds_and_the_same_name_are_different_gangs() -> None:
    keys = {
        ask.key
        for ask in (
            read(members="2", controller=TRAIN),
            read(members="2", controller=Owner("StatefulSet", "train", "u2", "apps")),
            read("train", "2"),
        )
        if isinstance(ask, GangAsk)
    }
    assert len(keys) == 3


def test_a_time_out_that_is_not_given_stays_below_a_short_http_time_out() -> None:
    ask = read("train", "2", longest_wait=5.0)
    assert isinstance(ask, GangAsk)
    assert ask.timeout == 4.5


def test_what_was_written_is_told_and_of_what_is_long_the_first_40_characters() -> None:
    long = "x" * 50
    members, timeout = read("train", long), read("train", "2", long)
    assert isinstance(members, MalformedAsk)
    assert isinstance(timeout, MalformedAsk)
    assert members.reason == f"annotation {MIN} is '{'x' * 40}', not a whole number from 1 to 10000"
    assert timeout.reason == f"annotation {TIMEOUT} is '{'x' * 40}', not a whole number of seconds, 1 or more"


def test_an_empty_annotation_without_label_and_controller_is_told_as_it_is() -> None:
    assert_malformed(read(members=""), MIN, "")


def test_a_second_is_the_shortest_time_out() -> None:
    ask = read("train", "2", "1")
    assert isinstance(ask, GangAsk)
    assert ask.timeout == 1.0


@pytest.mark.parametrize(
    "label", ["", "Train", "train_1", "train.v2", "-train", "train-", "x" * 64, "tr ain", "tra\nin", "zug-ä"]
)
def test_a_gang_name_that_is_no_dns_label_is_malformed(label: str) -> None:
    assert_malformed(read(label, "8"), LABEL, label)


@pytest.mark.parametrize(
    "members",
    ["", " ", "0", "-1", "+8", "8.0", "0.5", "1e3", "1Ei", "eight", "8 ", " 8", "8\n", "0x8", "1_0", "٨", "８", "²",
     "10001", "9" * 10, "9" * 5000, "true", "null", "[8]"],
)  # fmt: skip
def test_a_quorum_that_is_no_whole_number_from_1_to_10000_is_malformed(members: str) -> None:
    assert_malformed(read("train", members), MIN, members)
    assert_malformed(read(members=members, controller=TRAIN), MIN, members)


@pytest.mark.parametrize(("members", "quorum"), [("1", 1), ("10000", 10_000), ("008", 8)])
def test_a_quorum_from_1_to_10000_is_understood(members: str, quorum: int) -> None:
    ask = read("train", members)
    assert isinstance(ask, GangAsk)
    assert ask.quorum == quorum


@pytest.mark.parametrize(
    "timeout", ["", "0", "-1", "0.5", "30s", "1e1", "1m", "forever", "٣٠", "inf", "nan", "9" * 5000]
)
def test_a_time_out_that_is_no_whole_number_of_seconds_is_malformed(timeout: str) -> None:
    assert_malformed(read("train", "8", timeout), TIMEOUT, timeout)


@pytest.mark.parametrize("timeout", ["60", "61", "999999999"])
def test_a_time_out_at_or_above_the_schedulers_http_time_out_is_refused_with_both_numbers(timeout: str) -> None:
    ask = read("train", "8", timeout)
    assert_malformed(ask, TIMEOUT, timeout)
    assert isinstance(ask, MalformedAsk)
    assert ask.reason == f"annotation {TIMEOUT} is {timeout} s, but must be below kube-scheduler's httpTimeout of 60 s"
    assert "write less than 60, or raise httpTimeout" in ask.remedy


def test_a_label_without_a_quorum_and_a_quorum_without_a_gang_are_malformed() -> None:
    assert_malformed(read("train"), MIN, "")
    assert_malformed(read("train", controller=TRAIN), MIN, "")
    assert_malformed(read(members="8"), MIN, "8")


def assert_malformed(ask: GangAsk | GroupAsk | MalformedAsk | None, key: str, value: str) -> None:
    """It names the key, says how to mend it, is of bearable length, and says the same each time."""
    assert isinstance(ask, MalformedAsk)
    assert (ask.field, ask.value) == (key, value[:253])
    assert key in ask.reason
    assert "escher.dev/gang" in ask.remedy or "write" in ask.remedy
    assert len(ask.reason) < 300
    assert "\n" not in ask.reason


def test_the_label_of_scheduler_plugins_names_a_group_and_our_own_keys_go_before() -> None:
    labels = {"scheduling.x-k8s.io/pod-group": "mpi"}
    ask = read_gang_ask("team", labels, {}, None, longest_wait=60)
    assert ask == GroupAsk("team", "mpi", 60)
    own = read_gang_ask("team", labels, {MIN: "2"}, TRAIN, longest_wait=60)
    assert isinstance(own, GangAsk)
    assert own.key.name == "job.train"
