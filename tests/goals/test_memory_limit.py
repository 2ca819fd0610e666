"""Memory limit: the service is put into a control group that limits it, and asked for more than there is room for."""

from __future__ import annotations

import pytest

from loadtests.goals import memory_limit


@pytest.mark.longer
def test_near_the_limit_verbs_are_answered_and_the_service_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--nodes", "50", "--pods", "200", "--more", "16", "--seconds", "3", "--callers", "2"]
    code = memory_limit.main(given)
    told = capsys.readouterr()
    if code == memory_limit.NO_GROUP:
        pytest.skip(told.err.splitlines()[-1])
    assert code == 0, told.out
    answers = {line.partition("  ")[0]: line.partition("  ")[2].split() for line in told.out.splitlines()}
    assert answers["filter"][0] == "200:"
    assert answers["what-if"][0] == "503:"
    assert "the service goes on" in told.out
