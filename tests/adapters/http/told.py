"""What a refused call must look like."""

from __future__ import annotations

from typing import Any

import httpx


def problem(answer: httpx.Response, status: int, field: str | None = None) -> dict[str, Any]:
    """The problem details of the answer, known to be whole and to show nothing of our insides."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["content-length"] == str(len(answer.content))
    told: dict[str, Any] = answer.json()
    assert {"type", "title", "status", "detail", "field"} <= told.keys()
    assert told["status"] == status
    assert told["type"].startswith("urn:escher:problem:")
    assert told["detail"]
    assert "Traceback" not in answer.text
    if field is not None:
        assert told["field"] == field
    return told
