"""Policies from outside: those that were written for former names of methods work on."""

from __future__ import annotations

from pathlib import Path

import pytest

from extender.core.policy import Acts, RequeueHints
from extender.registry import policies

FORMER = """
class Calm:
    name = "calm"

    def take_stirred(self):
        return ["team"]

    def take_effects(self):
        return []

    def heed(self, told, now):
        self.told = told
"""


def test_a_policy_with_the_former_name_of_a_method_has_it_by_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "calm_policy_of_before.py").write_text(FORMER)
    *_, policy = policies(["calm_policy_of_before:Calm"], tmp_path)
    assert isinstance(policy, RequeueHints)
    assert policy.take_requeue_hints() == ["team"]
    assert isinstance(policy, Acts)
