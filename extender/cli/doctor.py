"""`escher doctor`: finds mistakes in a set-up and says how to mend them; removes Escher's gate.

Has the words, the options and the sources of facts; `extender.doctor` decides what is wrong, and is imported when
needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from extender.cli.common.api import Api, Json, connected, fail, out, print_json
from extender.cli.common.terminal import add_row, quietly

if TYPE_CHECKING:
    from extender.doctor.facts import Cluster, Facts, Part, Service
    from extender.doctor.findings import Report
    from extender.doctor.from_cluster import ServiceAccount
    from extender.doctor.gates import Gated
    from extender.doctor.permissions import Election
    from extender.settings.settings import Settings

_CROWDED = 20
"""The number of namespaces whose quotas are read: those with the most waiting pods."""
HELP = """Check a set-up for mistakes, and say how to fix them.

Example: escher doctor --scheduler-config scheduler-config/escher.yaml

It checks kube-scheduler's configuration, the cluster and the service,
changes nothing, and lists what it could not check. Exit code 0: no mistake
was found (a note may be intended), 1: some were, 2: wrong use. docs/doctor.md
has every check.

If Escher is down or uninstalled, --release-gates lists pods that wait
at its scheduling gate, and with --yes removes that gate from them.

Example: escher doctor --release-gates --namespace team-a
"""


@connected
def doctor(
    *,
    command: typer.Context,
    scheduler_config: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="kube-scheduler's configuration, or a ConfigMap with it; may be repeated."),
    ] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Cluster to check; else as `escher serve` chooses it.")
    ] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig.")] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The service's settings, as for `escher serve --config`.")
    ] = None,
    service_account: Annotated[
        str | None,
        typer.Option(metavar="NAMESPACE/NAME", help="Check its permissions; else those of the kubeconfig's user."),
    ] = None,
    release_gates: Annotated[
        bool, typer.Option("--release-gates", help="List pods that wait at Escher's gate instead.")
    ] = False,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="With --release-gates: only pods of this namespace.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="With --release-gates: remove the gate from these pods.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="With --release-gates: even if a service answers that would do it.")
    ] = False,
    service: Api,
    as_json: Json = False,
) -> None:
    if not release_gates:
        given = {"--namespace": namespace is not None, "--yes": yes, "--force": force}
        if alone := next((option for option, is_given in given.items() if is_given), None):
            fail(f"{alone} is for --release-gates; give that too, or omit it", code=2)
    elif scheduler_config or service_account:
        fail("--release-gates checks only pods; omit --scheduler-config and --service-account", code=2)
    renamed: list[str] = []
    settings = _settings(config, renamed.append)
    where = _Where(kubeconfig or settings.kubeconfig, context or settings.context)
    with quietly("critical"):
        if release_gates:
            _release_gates(service, where, namespace, yes=yes, force=force, as_json=as_json)
        else:
            account, service_is_given = _account(service_account), _address_is_given(command)
            files = scheduler_config or []
            _look(service, service_is_given, where, files, settings, renamed, config, account, as_json=as_json)


class _Where:
    """The cluster to check."""

    def __init__(self, kubeconfig: Path | None, context: str | None) -> None:
        self.kubeconfig, self.context = kubeconfig, context

    @property
    def is_given(self) -> bool:
        return self.kubeconfig is not None or self.context is not None


def _settings(config: Path | None, heard: Callable[[str], None]) -> Settings:
    from extender.settings.settings import BadSettings, load_settings

    try:
        return load_settings(config, heard)
    except BadSettings as error:
        fail(f"--config is {config}: {error}", code=2)


def _account(given: str | None) -> ServiceAccount | None:
    from extender.doctor.from_cluster import ServiceAccount

    if given is None:
        return None
    namespace, _, name = given.partition("/")
    if not namespace or not name or "/" in name:
        fail(f"--service-account is {given!r}; write NAMESPACE/NAME, such as escher-system/escher", code=2)
    return ServiceAccount(namespace, name)


# -- looking ---------------------------------------------------------------------------------------------------------


def _look(
    service: Api,
    service_is_given: bool,
    where: _Where,
    files: list[Path],
    settings: Settings,
    renamed: list[str],
    config: Path | None,
    account: ServiceAccount | None,
    *,
    as_json: bool,
) -> None:
    from datetime import UTC, datetime

    from extender import __version__
    from extender.doctor import from_files
    from extender.doctor.checks import CHECKS
    from extender.doctor.facts import Facts, Part, metadata_of
    from extender.doctor.findings import examine

    unread: dict[Part, str] = {}
    try:
        schedulers = tuple(each for file in files for each in from_files.scheduler_files(file))
    except from_files.BadFile as error:
        fail(f"--scheduler-config: {error}", code=2)
    if not schedulers:
        unread[Part.SCHEDULERS] = "give it with --scheduler-config FILE"
    if config is None:
        unread[Part.SETTINGS] = "give them with --config FILE; the doctor assumes the defaults"
    own_namespace = settings.service_namespace or settings.lease_namespace or (account and account.namespace)
    cluster, not_of_cluster = _of_cluster(
        where, account, _election(settings, account), own_namespace or settings.own_namespace
    )
    waiting = Counter(str(metadata_of(pod).get("namespace")) for pod in cluster.waiting_pods())
    crowded = [namespace for namespace, _ in waiting.most_common(_CROWDED)]
    of_service, not_of_service = _of_service(service, service_is_given, crowded)
    facts = Facts(
        now=datetime.now(UTC),
        shipped=from_files.shipped(__version__),
        settings=settings,
        renamed=tuple(renamed),
        schedulers=schedulers,
        cluster=cluster,
        service=of_service,
        unread=unread | not_of_cluster | not_of_service,
    )
    report = examine(facts, CHECKS)
    if as_json:
        print_json(_as_json(facts, report))
    else:
        _tell(facts, report)
    raise typer.Exit(1 if report.mistakes else 0)


def _election(settings: Settings, account: ServiceAccount | None) -> Election | None:
    """The election of the settings; None if it is off or its namespace is unknown."""
    from extender.doctor.permissions import Election

    namespace = settings.lease_namespace or (account.namespace if account else "")
    if not settings.leader_election or not namespace:
        return None
    return Election(namespace, settings.lease_name, settings.leader_service is not None)


def _of_cluster(
    where: _Where, account: ServiceAccount | None, election: Election | None, own_namespace: str
) -> tuple[Cluster, dict[Part, str]]:
    import asyncio
    from datetime import UTC, datetime

    from extender.doctor.facts import Cluster
    from extender.doctor.from_cluster import PARTS, read_cluster
    from extender.kube.client.connection import Connection
    from extender.kube.client.credentials import BadConfiguration, Credentials, default_loader

    async def read() -> tuple[Cluster, dict[Part, str]]:
        credentials = await Credentials.load(default_loader(where.kubeconfig, where.context))
        async with Connection(credentials) as connection:
            return await read_cluster(
                connection,
                lambda: datetime.now(UTC),
                where=credentials.address,
                account=account,
                election=election,
                own_namespace=own_namespace,
            )

    try:
        return asyncio.run(read())
    except BadConfiguration as error:
        if where.is_given:
            fail(f"--kubeconfig (or --context): {error}", code=2)
        return Cluster(), dict.fromkeys(PARTS, f"{error}; give one with --kubeconfig")


def _of_service(service: Api, is_given: bool, namespaces: list[str]) -> tuple[Service, dict[Part, str]]:
    from extender.doctor.facts import Service
    from extender.doctor.from_service import PARTS, read_service

    found, unread = read_service(service.address, lambda path: _answer(service, path), namespaces)
    if found.unreachable and not is_given:
        return Service(), dict.fromkeys(PARTS, f"no service answers at {service.address}; give its address with --url")
    return found, unread


def _answer(service: Api, path: str) -> Any:
    import httpx

    from extender.doctor.from_service import Answer, NobodyThere

    try:
        answer = service.get(path)
    except httpx.HTTPError as error:
        raise NobodyThere(f"it cannot be reached: {str(error).rstrip('.') or type(error).__name__}") from error
    try:
        body = answer.json()
    except ValueError:
        body = {}
    spoken = answer.extensions["network_stream"].get_extra_info("ssl_object")
    certificate = None if spoken is None else spoken.getpeercert(True)
    return Answer(answer.status_code, body if isinstance(body, dict) else {}, certificate)


def _address_is_given(command: typer.Context) -> bool:
    """Whether an option or the environment gives the service's URL."""
    source = command.get_parameter_source("url")
    return source is not None and source.name != "DEFAULT"


# -- telling ---------------------------------------------------------------------------------------------------------


def _looked_at(facts: Facts) -> list[str]:
    from extender.doctor.facts import Part

    cluster, service = facts.cluster, facts.service
    said = [file.name + ("" if file in facts.files else " (nothing of Escher's)") for file in facts.schedulers]
    if Part.SETTINGS not in facts.unread:
        said.append("the service's settings")
    if cluster.address and not cluster.unreachable:
        said.append(f"cluster {cluster.address}: {len(cluster.nodes)} nodes, {len(cluster.pods)} pods")
    if cluster.account:
        said.append(f"permissions of {cluster.account}")
    if service.version:
        said.append(f"service {service.address}, version {service.version}")
    return said


def _as_json(facts: Facts, report: Report) -> dict[str, Any]:
    return {
        "looked_at": _looked_at(facts),
        "findings": [each._asdict() for each in report.findings],
        "not_looked_at": [each._asdict() for each in report.skipped],
        "mistakes": report.mistakes,
    }


def _tell(facts: Facts, report: Report) -> None:
    out.print("looked at")
    for each in _looked_at(facts) or ["nothing"]:
        out.print(f"  {each}")
    if report.skipped:
        out.print("not looked at")
    for why in dict.fromkeys(each.why for each in report.skipped):
        alike = [each for each in report.skipped if each.why == why]
        checks = {name for each in alike for name in each.checks}
        out.print(f"  {', '.join(each.part for each in alike)}: {why} ({_counted(len(checks), 'check')})")
    if report.findings:
        table = Table(box=None, pad_edge=False)
        for head in ("found", "in", "what is wrong", "how to fix it"):
            table.add_column(head, overflow="fold")
        for found in report.findings:
            add_row(table, f"{found.severity} {found.check}", found.subject, found.wrong, found.mend)
        out.print()
        out.print(table, soft_wrap=False)
        out.print()
    out.print(_summary(report))


def _summary(report: Report) -> str:
    told = (_counted(report.mistakes, "mistake"), _counted(len(report.findings) - report.mistakes, "note"))
    return ", ".join(told) if report.findings else "nothing is wrong with what was looked at"


def _counted(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


# -- releasing gates -------------------------------------------------------------------------------------------------


def _release_gates(
    service: Api, where: _Where, namespace: str | None, *, yes: bool, force: bool, as_json: bool
) -> None:
    import asyncio

    from extender.kube.client.credentials import BadConfiguration
    from extender.kube.errors import Refused, Unavailable

    if yes and not force:
        _nobody_else_does_it(service)
    try:
        found, failed = asyncio.run(_released(where, namespace, yes=yes))
    except BadConfiguration as error:
        fail(f"--kubeconfig (or --context): {error}", code=2)
    except (Refused, Unavailable) as error:
        fail(str(error))
    if as_json:
        print_json({"items": [_gated_json(each, yes, failed) for each in found]})
    else:
        _tell_gated(found, failed, namespace, yes=yes)
    raise typer.Exit(1 if failed else 0)


def _nobody_else_does_it(service: Api) -> None:
    from extender.doctor.from_service import read_service

    there, _ = read_service(service.address, lambda path: _answer(service, path))
    if there.version:
        fail(
            f"a service answers at {service.address}: it removes the gate of each pod when its gang's turn comes. "
            "Stop it first, or give --force to release all now, whether or not their gangs fit"
        )


async def _released(where: _Where, namespace: str | None, *, yes: bool) -> tuple[list[Gated], dict[str, str]]:
    """The pods at the gate and, if `yes`, why the gate of some could not be removed."""
    from extender.doctor.gates import gated_pods, release
    from extender.kube.client.connection import Connection
    from extender.kube.client.credentials import Credentials, default_loader

    credentials = await Credentials.load(default_loader(where.kubeconfig, where.context))
    async with Connection(credentials) as connection:
        found = await gated_pods(connection, namespace)
        failed = {}
        for each in found if yes else ():
            if why := await release(connection, each.pod):
                failed[str(each.pod)] = why
        return found, failed


def _gated_json(gated: Gated, yes: bool, failed: dict[str, str]) -> dict[str, Any]:
    why = failed.get(str(gated.pod))
    return {
        "namespace": gated.pod.namespace,
        "pod": gated.pod.name,
        "gang": gated.gang or None,
        "scheduler": gated.scheduler,
        "other_gates": list(gated.other_gates),
        "released": yes and why is None,
        "error": why,
    }


def _tell_gated(found: list[Gated], failed: dict[str, str], namespace: str | None, *, yes: bool) -> None:
    if not found:
        out.print(f"no pod waits at Escher's gate{f' in namespace {namespace}' if namespace else ''}")
        return
    table = Table("pod", "gang", "scheduler", "other gates", "", box=None, pad_edge=False)
    for each in found:
        done = failed.get(str(each.pod), "gate removed") if yes else "waits"
        add_row(table, str(each.pod), each.gang, each.scheduler, ", ".join(each.other_gates), done)
    out.print(table)
    if not yes:
        out.print("nothing was changed; --yes removes the gate from these pods, and keeps other gates")
