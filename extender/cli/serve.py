"""`escher serve`: the service, until a signal stops it.

The service is imported when it is to run, so that the help of a command need not wait for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from extender.cli.common.terminal import echo

if TYPE_CHECKING:
    from extender.adapters.log_lines import LogLines
    from extender.settings.settings import Settings

HELP = """Run the service that kube-scheduler calls as its extender.

Example: escher serve --kubeconfig ~/.kube/config --port 8080

The --config file sets what Escher may do to pods. These settings take effect within seconds, without a restart:

  observe_only: true           decide and explain; evict, preempt, reserve and refuse nothing
  evict_partial_gangs: false   do not evict gangs that are bound in part
  gang_preemption: false       preempt no pods for a gang of higher priority
  backfill_reservation: false  reserve no capacity for the gang whose turn it is, and preempt no pods

Labels of a namespace restrict Escher further there; GET /v1/safety-switches shows what is in force:

  escher.dev/observe-only=true
  escher.dev/evict-parts=off
  escher.dev/preempt=off     its gangs preempt no pods, and its pods are not preempted
  escher.dev/save-room=off

These need a restart: scheduler_names, preempt_foreign_pods, preempts_despite_budgets, preemptions_per_gang_and_hour,
preempted_pods_per_gang_and_hour, evictions_per_second, backfill_max_share, backfill_max_seconds,
long_running_seconds, expected_members_limit; limits of callers: connections_limit, max_body_bytes,
max_inflight_body_bytes, api_qps, api_burst, api_queue_seconds, api_memory_limit_share, streams_per_client,
streams_per_namespace, streams_limit; authentication: tls_scheduler_names, authorization, token_audiences,
authorization_cache_seconds, insecure; leader election: leader_election, lease_name,
lease_namespace, lease_seconds, leader_service; the namespace of the service's own objects: service_namespace; and
traces: tracing. The service reloads certificates when their files change.
docs/operations.md describes every setting.
"""


def serve(
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Default: in a pod its service account, else ~/.kube/config.")
    ] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on (default 127.0.0.1).")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on (default 8080).")] = None,
    config: Annotated[Path | None, typer.Option(help="YAML file of settings; options given here override it.")] = None,
    tls_certificate: Annotated[Path | None, typer.Option(help="Serve https with this certificate chain (PEM).")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Private key of the certificate (PEM).")] = None,
    tls_client_ca: Annotated[
        Path | None,
        typer.Option(help="kube-scheduler must present a certificate from one of these CAs (PEM)."),
    ] = None,
    insecure: Annotated[
        bool | None,
        typer.Option("--insecure", help="Listen for other machines without authentication."),
    ] = None,
    authorization: Annotated[
        str | None, typer.Option(help="none or kubernetes: whether tokens and RBAC control access to /v1.")
    ] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
    log_format: Annotated[str | None, typer.Option(help="text, or json: one object a line.")] = None,
) -> None:
    from functools import partial

    import structlog

    from extender.settings.settings import BadSettings, load_settings

    renamed: dict[str, None] = {}
    load = partial(
        load_settings,
        config,
        renamed.setdefault,
        kubeconfig=kubeconfig,
        context=context,
        host=host,
        port=port,
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        tls_client_ca=tls_client_ca,
        insecure=insecure,
        authorization=authorization,
        log_level=log_level,
        log_format=log_format,
    )
    try:
        settings = load()
    except BadSettings as error:
        echo(f"escher serve: {error}", err=True, keep="\n")
        raise typer.Exit(2) from None
    lines = _log_to_stderr(settings)
    for said in renamed:
        structlog.get_logger(__name__).warning("a setting was renamed", what=said)
    try:
        code = _run(settings, config, load, lines)
    finally:
        # Before any output beside the log.
        if lines is not None:
            lines.drain()
    raise typer.Exit(code)


def _run(settings: Settings, config: Path | None, load: Callable[[], Settings], lines: LogLines | None) -> int:
    """Runs the service; returns the exit code."""
    import asyncio
    import gc
    from signal import SIGINT

    # Imports load a thousand modules and leave no garbage; collection would take a sixth of the start.
    gc.disable()
    import uvloop

    from extender.adapters.http.server.tls import CannotListen
    from extender.app.admin.leader_election import LeaseLost
    from extender.kube.client.credentials import BadConfiguration
    from extender.registry import BadPolicy
    from extender.serving import serve as run_service
    from extender.settings.settings import BadSettings

    gc.freeze()
    gc.enable()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            asked_by = runner.run(run_service(settings, config, load, lines))
    except (BadPolicy, BadSettings) as error:
        echo(f"escher serve: {error}", err=True, keep="\n")
        return 2
    except LeaseLost as error:
        echo(f"escher serve: this replica is no longer the leader, and exits: {error}", err=True)
        return 3
    except (BadConfiguration, CannotListen) as error:
        echo(f"escher serve: {error}", err=True)
        return 1
    # As shells have it: SIGTERM requests an orderly end (0), SIGINT is a user's interrupt (130).
    return 130 if asked_by is SIGINT else 0


def _log_to_stderr(settings: Settings) -> LogLines | None:
    import logging

    import structlog

    from extender.adapters.log_lines import LineLogger, LogLines

    def again(lost: int, why: str) -> None:
        structlog.get_logger(__name__).warning("log lines were lost", lines=lost, why=why)

    # Without a standard error, its descriptor number may belong to any file.
    lines = LogLines(None if sys.stderr is None else sys.stderr.fileno(), again=again)
    stream: Any = lines

    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    common: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso"),
        structlog.processors.format_exc_info,
    ]
    if settings.log_format == "json":
        last: Any = structlog.processors.JSONRenderer()
        logging.basicConfig(level=level, stream=stream)
        # Libraries' log lines are objects too, with the same keys.
        whole = [structlog.stdlib.add_logger_name, *common]
        as_json = structlog.stdlib.ProcessorFormatter(foreign_pre_chain=whole, processor=last)
        for handler in logging.getLogger().handlers:
            handler.setFormatter(as_json)
    else:
        last = structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"])
        logging.basicConfig(level=level, stream=stream, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    structlog.configure(
        processors=[*common, last],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        # Each line is written in one piece with its line end.
        logger_factory=lambda *names: LineLogger(stream),
    )
    return lines
