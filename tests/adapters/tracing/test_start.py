"""Traces are off unless they are asked for, and then nothing of OpenTelemetry's SDK is even imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from extender.adapters.tracing import words
from extender.adapters.tracing.start import exported
from extender.settings.settings import BadSettings, load_settings

ROOT = Path(__file__).parents[3]


def test_it_is_off_by_default_and_then_the_environment_switches_nothing_on() -> None:
    assert exported(load_settings(None), {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}) is None


async def closed(environment: dict[str, str]) -> bool:
    found = exported(load_settings(None, tracing="otlp"), environment)
    if found is None:
        return False
    await found.close()
    return True


@pytest.mark.anyio
async def test_it_is_on_when_the_setting_says_so() -> None:
    assert await closed({})
    assert not await closed({"OTEL_SDK_DISABLED": "true"})


def test_without_the_extra_it_is_said_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "extender.adapters.tracing.export", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(
        BadSettings, match=r"tracing = 'otlp': .*; install escher-kubernetes\[otel\], or set tracing: none"
    ):
        exported(load_settings(None, tracing="otlp"), {})


def test_nothing_of_it_is_imported_by_a_service_without_traces() -> None:
    asked = (
        "import sys, extender.serving, extender.cli.serve; "
        "print([each for each in sys.modules if each.startswith(('opentelemetry.sdk', 'opentelemetry.exporter',"
        " 'google.protobuf', 'extender.adapters.tracing.')) and not each.endswith('.start')])"
    )
    said = subprocess.run([sys.executable, "-c", asked], cwd=ROOT, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


def test_the_operators_page_has_every_word_that_a_span_says() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    said = [value for name, value in vars(words).items() if name.isupper()]
    assert [each for each in said if f"`{each}`" not in page] == []
    assert len(said) > 15
