"""What a run is asked to do is checked before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from extender.shipped.errors import WrongUse
from loadtests.load.__main__ import main
from loadtests.load.plan import MANAGEMENT, PODS, VERBS, Plan, plan_of


def test_nothing_said_is_a_steady_load_on_pods_and_the_management_api() -> None:
    plan = plan_of()
    assert plan == Plan()
    assert (plan.shape, plan.seconds, plan.who) == ("steady", 20.0, (*PODS, *MANAGEMENT))


def test_a_shape_has_a_time_of_its_own_unless_another_is_said() -> None:
    assert (plan_of(shape="soak").seconds, plan_of(shape="soak", time="8h").seconds) == (3600.0, 28800.0)


def test_a_soak_can_be_as_long_and_as_fast_as_is_said() -> None:
    plan = plan_of(shape="soak", minutes="30", rate="200")
    assert (plan.seconds, plan.rate) == (1800.0, 200)


@pytest.mark.parametrize("said", [{"host": "http://127.0.0.1:8080/"}, {"reference": "1"}])
def test_beside_a_reference_or_at_somebody_elses_service_it_is_the_filter_verb(said: dict[str, Any]) -> None:
    assert plan_of(**said).who == ("Scheduler",)


def test_groups_and_names_can_be_mixed_and_nobody_comes_twice() -> None:
    assert plan_of(who=["management", "Scheduler", "Policies"]).who == (*MANAGEMENT, "Scheduler")
    assert plan_of(who=["verbs"]).who == VERBS


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"shape": "wave"}, r"--shape is 'wave'; there are steady, ramp, spike, soak"),
        ({"time": "soon"}, r"--time is 'soon'; write a duration"),
        ({"users": "0"}, r"--users is '0'; write a number from 1 to 1000"),
        ({"rate": "fast"}, r"--rate is 'fast'; write a number from 1 to 10000"),
        ({"rate": "200", "who": ["Policies"]}, r"--rate is '200', and Policies call no verbs"),
        ({"minutes": "0.5"}, r"--minutes is '0.5'; write a number from 1 to 43200"),
        ({"minutes": "3", "time": "3m"}, r"--time is '3m' and --minutes is '3': leave one out"),
        ({"users": "many"}, r"--users is 'many'"),
        ({"nodes": "-1"}, r"--nodes is '-1'"),
        ({"who": ["Everybody"]}, r"--who is 'Everybody'; there are verbs, pods, management, Scheduler"),
        ({"who": ["pods", "Gangs"]}, r"Gangs keep room .* OrdinaryPods, EphemeralPods, GangPods would lack"),
        ({"host": "127.0.0.1:8080"}, r"--host is '127.0.0.1:8080'; write a URL"),
        ({"host": "http://h:99999"}, r"--host is 'http://h:99999'; write a URL"),
        ({"host": "http://h", "who": ["pods"]}, r"OrdinaryPods, .* need a cluster of their own"),
        ({"host": "http://h", "real": True}, r"no cluster is started for it: leave out --real"),
        ({"reference": "yes"}, r"--reference is 'yes'; write a URL"),
        ({"shape": "ramp", "page": True}, r"--shape is 'ramp' with --page"),
    ],
)
def test_what_makes_no_sense_is_refused_with_option_and_value(said: dict[str, Any], told: str) -> None:
    with pytest.raises(WrongUse, match=told):
        plan_of(**said)


def test_wrong_use_ends_with_exit_code_2_and_starts_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--shape", "wave"]) == 2
    assert capsys.readouterr().err == "loadtest: --shape is 'wave'; there are steady, ramp, spike, soak\n"
    assert main(["--again", "nowhere"]) == 2
