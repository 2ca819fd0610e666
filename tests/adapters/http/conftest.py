"""What every test of the HTTP adapter starts from."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from tests.adapters.http.fakes import NotedManagement, NotedVerbs, Ready, in_process, service


@pytest.fixture
def verbs() -> NotedVerbs:
    return NotedVerbs()


@pytest.fixture
def management() -> NotedManagement:
    return NotedManagement()


@pytest.fixture
def ready() -> Ready:
    return Ready()


@pytest.fixture
async def client(verbs: NotedVerbs, management: NotedManagement, ready: Ready) -> AsyncIterator[httpx.AsyncClient]:
    """The whole service, in this process."""
    async with in_process(service(verbs, management, ready=ready, body_limit=2 * 2**20)) as calling:
        yield calling
