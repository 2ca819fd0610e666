"""Any call that OpenAPI allows, and many that it does not: Schemathesis draws them, and every answer is documented.

Schemathesis and Hypothesis draw the same calls on every run; what fails is printed as a curl command. Schemathesis is
imported when it is to draw, for that takes longer than to collect a hundred modules of tests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings
from prometheus_client import CollectorRegistry

from extender.adapters.http.api import create_api
from tests.adapters.http.fakes import NotedManagement, Ready
from tests.e2e.conftest import shared_field
from tests.e2e.workload import Field

pytestmark = [pytest.mark.timeout(300), pytest.mark.longer]

_DOCUMENT = create_api(NotedManagement().by_noun(), Ready(), CollectorRegistry()).openapi()
# The stream of events has no end, and tests of its own.
LABELS = [
    f"{method.upper()} {path}"
    for path, methods in _DOCUMENT["paths"].items()
    for method in methods
    if path != "/v1/events"
]
THERE = {"ns": "default", "name": "data1", "pod": "p"}


@cache
def operations() -> dict[str, Any]:
    import schemathesis

    found: Any = schemathesis.openapi.from_dict(_DOCUMENT).get_all_operations()
    return {operation.label: operation for operation in (each.ok() for each in found)}


@pytest.fixture(scope="module")
def field(where: str, state_folder: object) -> Iterator[Field]:
    """A cluster of its own, for whatever is set in it."""
    yield from shared_field(where, nodes=3)


def calls(operation: Any, node: str) -> st.SearchStrategy[Any]:
    """Calls as they should be, for anything and for what may be there, and calls that are wrong somewhere."""
    from schemathesis import GenerationMode

    asked = {part.name for part in operation.path_parameters}
    there = {name: value for name, value in THERE.items() if name in asked}
    there_now = operation.as_strategy(generation_mode=GenerationMode.POSITIVE, path_parameters=there)
    return st.one_of(
        operation.as_strategy(generation_mode=GenerationMode.POSITIVE),
        there_now.map(lambda case: on_node(case, node)),
        operation.as_strategy(generation_mode=GenerationMode.NEGATIVE),
    )


def on_node(case: Any, node: str) -> Any:
    """The call, with a node, resources and names that are there wherever it names some."""
    body = case.body if isinstance(case.body, dict) else {}
    for each in (body, *body.get("operations", ())):
        if isinstance(each.get("node_spec"), str):
            each["node_spec"] = node
        # Nobody is to be held for long: at the end the cluster must be sound.
        each |= {"node": node, "units": {"cpu": 0.001}, "ttl_seconds": 1} if "units" in each else {}
        each |= {"namespace": "default"} if "namespace" in each else {}
    if "read" in body:
        body["read"] = {node: 1}
    case.headers.pop("If-Match", None)
    if body:
        case.headers["Escher-Node"] = node
    return case


def test_all_operations_are_called() -> None:
    assert sorted(operations()) == sorted([*LABELS, "GET /v1/events"])


@pytest.mark.parametrize("label", LABELS)
def test_whatever_is_called_is_answered_as_documented(field: Field, label: str) -> None:
    from schemathesis import checks

    all_checks: Any = [
        checks.not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_headers_conformance,
        checks.response_schema_conformance,
    ]
    operation = operations()[label]
    node = field.api.get("/api/v1/nodes")["items"][0]["metadata"]["name"]
    told: Counter[int] = Counter()

    @settings(suppress_health_check=list(HealthCheck))
    @given(case=calls(operation, node))
    def answered(case: Any) -> None:
        answer = case.call(base_url=field.cluster.service_url)
        told[answer.status_code] += 1
        case.validate_response(answer, checks=all_checks)

    answered()
    field.measured.append(f"{label}: " + ", ".join(f"{status} {count} times" for status, count in sorted(told.items())))
    assert told.keys() & {200, 204} or "{name}" in label or "{pod}" in label, "nothing was drawn that can be done"
