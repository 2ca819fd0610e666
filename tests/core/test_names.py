"""What makes a name well formed, and how a resource is spelled on nodes and in pods."""

from __future__ import annotations

import pytest

from extender.core.names import EphemeralName, GangKey, ephemeral_name, in_domain
from extender.kube.names import InvalidName, require_label
from tests.builders import pod


def test_a_namespaced_resource_shows_its_namespace_before_the_first_dot_and_a_shared_one_does_not() -> None:
    assert ephemeral_name("team-a", "data1").key() == "escher.dev/team-a.data1"
    assert ephemeral_name("team-a", "data1", shared=True).key() == "escher.dev/data1"
    assert ephemeral_name("team-a", "data1").key("example.org") == "example.org/team-a.data1"


def test_names_are_shown_as_namespace_and_name() -> None:
    assert str(EphemeralName("team-a", "data1")) == "team-a/data1"
    assert str(GangKey("team-a", "train")) == "team-a/train"


def test_63_characters_after_the_slash_are_the_limit_namespace_and_dot_included() -> None:
    assert len(ephemeral_name("team-a", "x" * 56).key()) == len("escher.dev/") + 63
    assert len(ephemeral_name("team-a", "x" * 63, shared=True).key()) == len("escher.dev/") + 63


@pytest.mark.parametrize(
    ("namespace", "name", "shared", "field", "length"),
    [
        ("team-a", "x" * 57, False, "name", 64),
        ("n" * 63, "x", False, "name", 65),
        ("team-a", "x" * 64, False, "name", 64),
        ("team-a", "x" * 64, True, "name", 64),
        ("n" * 64, "x", False, "namespace", 64),
        ("team-a", "x" * 100_000, False, "name", 100_000),
    ],
)
def test_a_name_that_is_too_long_is_refused_with_the_limit_and_its_length(
    namespace: str, name: str, shared: bool, field: str, length: int
) -> None:
    with pytest.raises(InvalidName, match=f"has {length} characters; the limit .*is 63") as refusal:
        ephemeral_name(namespace, name, shared=shared)
    assert refusal.value.field == field
    assert len(str(refusal.value)) < 400


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a_b", "a.b", "a/b", "a b", "a\n", "ä", "٣"])
def test_a_name_that_is_no_dns_label_is_refused_with_what_would_be(name: str) -> None:
    with pytest.raises(
        InvalidName,
        match=r"not a DNS label: use lower-case letters, digits and '-', beginning and ending with a letter or digit$",
    ) as refusal:
        ephemeral_name("team-a", name)
    assert (refusal.value.field, refusal.value.value) == ("name", name)
    with pytest.raises(InvalidName, match="namespace"):
        ephemeral_name(name, "data1")


def test_no_shared_resource_is_called_like_what_has_kube_scheduler_call_us() -> None:
    with pytest.raises(InvalidName, match=r"name 'managed' is reserved: kube-scheduler asks Escher about pods that"):
        ephemeral_name("team-a", "managed", shared=True)
    assert ephemeral_name("team-a", "managed").key() == "escher.dev/team-a.managed"


@pytest.mark.parametrize("name", ["a", "1", "a-1", "1a", "a--b", "x" * 63])
def test_a_dns_label_is_accepted(name: str) -> None:
    assert require_label("name", name) == name


@pytest.mark.parametrize(
    ("key", "ours"),
    [("escher.dev/a.b", True), ("cpu", False), ("x.com/gpu", False), ("escher.dev", False), ("escher.dev.x/a", False)],
)  # fmt: skip
def test_only_what_is_in_our_domain_is_ours(key: str, ours: bool) -> None:
    assert in_domain(key) is ours
    assert not in_domain(key, "example.org")


def test_a_pod_is_shown_as_namespace_and_name() -> None:
    assert str(pod("worker-0", namespace="team-a")) == "team-a/worker-0"


def test_a_refused_value_is_shown_whole_unless_it_is_very_long() -> None:
    assert str(InvalidName("name", "A" * 126, "is wrong")) == f"name {'A' * 126!r} is wrong"
    assert str(InvalidName("name", "A" * 127, "is wrong")) == f"name '{'A' * 63}...' is wrong"
