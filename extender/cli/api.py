"""The management API as the commands for people call it: options, one request, pages, errors in words.

Exit codes: 1 where the service refuses or cannot be reached, 2 for wrong use. Results go to standard output.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn
from urllib.parse import quote

import httpx
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

DEFAULT_URL = "http://127.0.0.1:8080"
_TIMEOUT = 60.0

out = Console(highlight=False, soft_wrap=True)
if not out.is_terminal:
    # A file or pipe has no width; rows stay whole.
    out = Console(highlight=False, soft_wrap=True, width=400)
_beside = Console(stderr=True, highlight=False, soft_wrap=True)

Url = Annotated[str, typer.Option("--url", envvar="ESCHER_URL", help="Address of the Escher service.")]
Namespace = Annotated[str, typer.Option("--namespace", "-n", envvar="ESCHER_NAMESPACE", help="Kubernetes namespace.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would happen; change nothing.")]


def connect(url: str) -> httpx.Client:
    """A client of the service at that address."""
    return httpx.Client(base_url=url, timeout=_TIMEOUT)


class Api:
    """One command's calls."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def call(
        self,
        method: str,
        *path: str,
        body: Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str | None] | None = None,
    ) -> Any:
        """The answer's JSON; None where there is none. Path parts are names, quoted here. Does not return on errors."""
        address = "/v1/" + "/".join(quote(part, safe="") for part in path)
        given = {key: value for key, value in (params or {}).items() if value is not None}
        told = {key: value for key, value in (headers or {}).items() if value is not None}
        try:
            answer = self._client.request(method, address, json=body, params=given, headers=told)
        except httpx.TimeoutException:
            fail(f"the service at {self._client.base_url} did not answer within {_TIMEOUT:g} s")
        except httpx.HTTPError as error:
            fail(
                f"the service at {self._client.base_url} cannot be reached: {error}."
                " Give its address with --url or ESCHER_URL, or start it: escher serve"
            )
        if answer.is_error:
            fail(_refusal(answer))
        if not answer.content:
            return None
        try:
            return answer.json()
        except ValueError:
            fail(f"what answers at {self._client.base_url} is no Escher service: its answer is not JSON")

    def every(self, *path: str, params: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """All items of a list, page after page."""
        items: list[dict[str, Any]] = []
        following: str | None = None
        while True:
            page = self.call("GET", *path, params={**(params or {}), "continue": following})
            items += page["items"]
            following = page["continue"]
            if following is None:
                return items


@contextmanager
def api(url: str) -> Iterator[Api]:
    """The API at that address, while the block lasts."""
    if not url.startswith(("http://", "https://")):
        raise typer.BadParameter(f"{url!r} is no address of a service; write one such as {DEFAULT_URL}")
    with connect(url) as client:
        yield Api(client)


def own_node() -> dict[str, str | None]:
    """The header that tells the node this runs on, if the environment does (downward API)."""
    return {"Escher-Node": os.environ.get("ESCHER_NODE") or None}


def add_row(table: Table, *cells: str) -> None:
    """The table has one more row, its cells as they are: names in brackets are no markup."""
    table.add_row(*(Text(cell) for cell in cells))


def print_json(value: object) -> None:
    out.print(json.dumps(value, indent=2), markup=False)


def fail(message: str) -> NoReturn:
    """The command ends with this text and exit code 1."""
    _beside.print(f"escher: {message}", markup=False)
    raise typer.Exit(1)


def _refusal(answer: httpx.Response) -> str:
    try:
        problem = answer.json()
        detail, field = str(problem["detail"]), problem.get("field")
    except (ValueError, KeyError, TypeError):
        return f"the service answers {answer.status_code} {answer.reason_phrase}"
    return detail if field is None or str(field) in detail else f"{field}: {detail}"
