"""Alerts and dashboard look at metrics that there are, and each alert has a page that says what to do."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from extender.adapters.http.metrics import verb_metrics
from tests.deploy.manifests import DEPLOY, ROOT

RULE = yaml.safe_load((DEPLOY / "monitoring" / "alerts.yaml").read_text())
ALERTS: list[dict[str, Any]] = [each for group in RULE["spec"]["groups"] for each in group["rules"]]
DASHBOARD = json.loads((DEPLOY / "monitoring" / "dashboard.json").read_text())
PANELS: list[dict[str, Any]] = [each for each in DASHBOARD["panels"] if each["type"] != "row"]
RUNBOOKS = ROOT / "docs" / "runbooks"
BY_NAME = pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: str(alert["alert"]))


def there_are() -> set[str]:
    """The names of all metrics, as Prometheus has them: a counter ends in _total, a histogram is three."""
    source = (ROOT / "extender" / "adapters" / "metrics.py").read_text()
    registry = CollectorRegistry()
    verb_metrics(registry)
    found = {(family.name, family.type) for family in registry.collect()}
    for kind, name in re.findall(r"\b(Counter|Gauge|Histogram)(?:MetricFamily)?\(\s*\"(escher_[a-z_]+)\"", source):
        found.add((name, kind.lower()))
    spelt = {"counter": ["_total"], "gauge": [""], "histogram": ["_bucket", "_count", "_sum"]}
    return {name + ending for name, kind in found for ending in spelt[kind]}


METRICS = there_are()


def asked(expression: str) -> set[str]:
    return set(re.findall(r"\bescher_[a-z_]+", expression))


def stem(name: str) -> str:
    """As people know it."""
    return re.sub(r"_(bucket|count|sum)$", "", name)


def complaint(expression: str) -> str:
    """What is wrong with it, as far as one sees who does not know PromQL; empty: nothing."""
    bare = re.sub(r'"[^"]*"', '""', expression)
    closing = {")": "(", "}": "{", "]": "["}
    opened: list[str] = []
    for sign in bare:
        if sign in closing.values():
            opened.append(sign)
        elif sign in closing and (not opened or opened.pop() != closing[sign]):
            return f"{sign} closes nothing"
    if opened:
        return f"{opened[-1]} is never closed"
    for word in re.findall(r"\b([a-z_]+)\s*\(", bare):
        if word not in _FUNCTIONS:
            return f"{word} is no function"
    ranges = re.findall(r"\[([^\]]*)\]", bare)
    if wrong := [each for each in ranges if not re.fullmatch(r"\d+[smhd]|\$__rate_interval", each)]:
        return f"[{wrong[0]}] is no duration"
    return "" if asked(expression) else "it asks for nothing of ours"


_FUNCTIONS = {"absent", "and", "by", "changes", "histogram_quantile", "increase", "max", "min", "min_over_time", "rate"}
_FUNCTIONS |= {"sum", "time"}


@BY_NAME
def test_an_alert_is_about_metrics_that_there_are(alert: dict[str, Any]) -> None:
    assert complaint(alert["expr"]) == ""
    assert asked(alert["expr"]) - METRICS == set()


@BY_NAME
def test_an_alert_says_how_bad_it_is_and_what_it_means(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in ("critical", "warning", "info")
    assert set(alert["annotations"]) == {"summary", "description"}
    labels = set(re.findall(r"\$labels\.(\w+)", str(alert["annotations"])))
    assert labels <= set(re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", alert["expr"])))), "these are summed"


@BY_NAME
def test_an_alert_has_a_page_that_says_what_to_look_at_and_what_to_do(alert: dict[str, Any]) -> None:
    page = (RUNBOOKS / f"{alert['alert']}.md").read_text()
    assert page.startswith(f"# {alert['alert']}\n")
    headings = re.findall(r"^## (.*)$", page, re.MULTILINE)
    assert headings == ["What it means", "What to look at", "What to do"]
    assert {stem(name) for name in asked(alert["expr"])} & asked(page), "it names the metric"


def test_every_page_has_its_alert_and_every_alert_a_name_of_its_own() -> None:
    names = [each["alert"] for each in ALERTS]
    assert [name for name, times in Counter(names).items() if times > 1] == []
    assert {path.stem for path in RUNBOOKS.glob("*.md")} == set(names)


def test_what_operations_calls_worth_an_alert_has_one() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    worth = re.findall(r"Worth an alert: (.*?)\n\n", page, re.DOTALL)
    alerted = set().union(*(asked(each["expr"]) for each in ALERTS))
    assert set().union(*map(asked, worth)) - alerted == set()


# -- dashboard -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: str(panel["title"]))
def test_a_panel_shows_metrics_that_there_are(panel: dict[str, Any]) -> None:
    assert panel["targets"]
    for target in panel["targets"]:
        assert complaint(target["expr"]) == ""
        assert asked(target["expr"]) - METRICS == set()
        summed = re.findall(r"by \(([^)]*)\)", target["expr"])
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= set(re.findall(r"\w+", " ".join(summed)))


def test_the_dashboard_shows_every_metric_and_no_panel_covers_another() -> None:
    shown = {name for panel in PANELS for target in panel["targets"] for name in asked(target["expr"])}
    assert set(map(stem, METRICS)) - set(map(stem, shown)) == set()
    places = Counter(
        (x, y)
        for panel in DASHBOARD["panels"]
        for at in [panel["gridPos"]]
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    )
    assert max(places.values()) == 1
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_a_wrong_expression_and_a_metric_that_is_not_there_are_noticed() -> None:
    for wrong in ("sum(escher_brake", "summ(escher_brake)", "rate(escher_brake[5x])", "sum(up)", "escher_brake}"):
        assert complaint(wrong), wrong
    assert not complaint('sum by (le) (rate(escher_extender_nodes_bucket{verb=~"(a"}[5m]))')
    assert asked("sum(escher_brakes)") - METRICS == {"escher_brakes"}
