"""Settings: defines the service's settings, with defaults and limits.

They come from a file (`escher serve --config FILE`, YAML) or the command line.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from extender.core.safety_switches import Switches
from extender.settings.settings_isolation import IsolationSettings
from extender.settings.settings_renamed import BothNames, by_new_names

OWN_NAMESPACE = "escher-system"
"""The service's own namespace, if neither the settings nor a pod give it."""


OptionalKind = Literal[
    "daemonsets", "escherpolicies", "jobs", "namespaces", "poddisruptionbudgets", "podgroups", "transactionintents"
]


class BadSettings(ValueError):
    """An unusable configuration; `str()` names each field, its value and what is accepted."""


class Settings(BaseModel):
    """All settings. Unknown keys are refused, so that a misspelt one is noticed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8080, ge=0, le=65535, description="port to listen on; 0 chooses a free one")
    kubeconfig: Path | None = Field(None, description="default: the pod's service account, else the user's kubeconfig")
    context: str | None = Field(None, description="the context of the kubeconfig to use; default: its current one")
    tls_certificate: Path | None = Field(None, description="certificate chain (PEM) for https")
    tls_key: Path | None = Field(None, description="private key (PEM) of tls_certificate")
    tls_client_ca: Path | None = Field(
        None, description="CAs (PEM): one must have signed kube-scheduler's client certificate; others may show one"
    )
    tls_scheduler_names: tuple[str, ...] = Field(
        ("system:kube-scheduler",),
        min_length=1,
        description="common names of the client certificates that may call the verbs; only with tls_client_ca",
    )
    insecure: bool = Field(
        False, description="listen on an address that other machines reach, without requiring client certificates"
    )
    authorization: Literal["none", "kubernetes"] = Field(
        "none",
        description="kubernetes: callers of /v1 show a token, and RBAC decides what they may do; none: no checks",
    )
    token_audiences: tuple[str, ...] = Field(
        (), description="accept tokens issued for one of these audiences; none: for the API server itself"
    )
    authorization_cache_seconds: float = Field(
        10.0, ge=0.0, le=300.0, description="how long the API server's answers about tokens and their rights are cached"
    )
    api_qps: float = Field(
        200.0, gt=0.0, le=1_000_000.0, description="calls of /v1 per second and client, on average; see api_burst"
    )
    api_burst: int = Field(1000, ge=1, le=1_000_000, description="most calls of /v1 that one client may make at once")
    api_queue_seconds: float = Field(
        15.0,
        gt=0.0,
        le=60.0,
        description="a call of /v1 that waits longer than this to start is refused; kube-scheduler's calls go first",
    )
    api_memory_limit_share: float = Field(
        0.9,
        ge=0.0,
        le=1.0,
        description="calls of /v1 are refused while more than this share of the container's memory limit is in use "
        "(0: never)",
    )
    scheduler_http_timeout_seconds: float = Field(
        60.0, gt=1.0, le=600.0, description="the extender's httpTimeout in kube-scheduler's configuration"
    )
    scheduler_names: tuple[str, ...] = Field(
        ("escher", "escher-ledger"),
        min_length=1,
        description="schedulerName of Escher's pods; pods of other schedulers are never touched, whatever their labels",
    )
    reserve_at_filter: bool = Field(
        True, description="reserve ephemeral resources and a gang's places from filter on; false: claim them at bind"
    )
    backfill_after_skips: int = Field(
        8, ge=0, le=10_000, description="skips of the first gang in the queue before it gets a backfill reservation"
    )
    backfill_after_seconds: float = Field(
        60.0, ge=0.0, le=86_400.0, description="wait of the first gang in the queue for a backfill reservation"
    )
    observe_only: bool = Field(
        False, description="decide and explain, but do not evict, preempt, refuse or reserve for backfill (changeable)"
    )
    evict_partial_gangs: bool = Field(
        True,
        description="evict members of a gang that is known to be bound in part and could not be completed (changeable)",
    )
    gang_preemption: bool = Field(
        True, description="evict whole gangs and pods of lower priority if a gang then fits (changeable)"
    )
    backfill_reservation: bool = Field(
        True, description="reserve freed capacity for the first gang in the queue (changeable); false: no preemption"
    )
    preempt_foreign_pods: bool = Field(False, description="preempt pods of other schedulers too")
    preempts_despite_budgets: Literal["last-resort", "never"] = Field(
        "last-resort",
        description="last-resort: preempt pods that a disruption budget protects only if nothing else fits (as "
        "kube-scheduler does); never: do not preempt them",
    )
    preempts_for_policies: bool = Field(
        False,
        description="also evict pods of lower priority for a pod without a gang that only policies keep off a node",
    )
    evictions_per_second: float = Field(5.0, gt=0.0, le=1000.0, description="evictions per second, on average")
    backfill_max_share: float = Field(
        0.25, gt=0.0, le=1.0, description="largest share of the cluster kept idle for the first gang in the queue"
    )
    backfill_max_seconds: float = Field(
        600.0, gt=0.0, le=86_400.0, description="duration of a backfill reservation if nothing more becomes free"
    )
    max_ephemeral_resources_per_node: int = Field(
        1500,
        ge=1,
        le=3000,
        description="most ephemeral resources of a node; the API server cannot store a Node larger than 1.5 MiB",
    )
    cross_namespace_units: Literal["refuse", "allow"] = Field(
        "refuse",
        description="whether pods may request ephemeral resources that other namespaces do not export to theirs",
    )
    long_running_seconds: float = Field(
        86_400.0,
        ge=60.0,
        description="no backfill reservation for a gang that must wait for a pod that has run this long, unless a Job "
        "owns the pod or the gang may preempt it",
    )
    expected_members_limit: int = Field(
        256,
        ge=0,
        le=100_000,
        description="most places reserved in a namespace for gang members that their Jobs have not created yet",
    )
    preemptions_per_gang_and_hour: int = Field(
        4, ge=0, le=1000, description="most preemptions for one gang within an hour that do not lead to its start"
    )
    preempted_pods_per_gang_and_hour: int = Field(
        1000, ge=0, le=1_000_000, description="most pods evicted for one gang within an hour without its start"
    )
    stale_after_seconds: float = Field(
        300.0,
        ge=0.0,
        le=86_400.0,
        description="Escher plans nothing new once a watch is silent for this long (0: it plans anyway)",
    )
    without: tuple[OptionalKind, ...] = Field(
        (), description="kinds that Escher neither reads nor waits for at the start; limits that they set do not apply"
    )
    isolation: IsolationSettings = Field(
        IsolationSettings(),
        description="by namespace: quotas, and the nodes and names that it may use (changeable)",
    )
    policies: tuple[str, ...] = Field(
        (),
        description="further policies, called after Escher's own: module:Class, or the name of an entry point of the "
        "group escher.policies",
    )
    policies_folder: Path | None = Field(None, description="folder with the modules that `policies` names")
    max_body_bytes: int = Field(256 * 2**20, ge=2**20, description="largest body that a scheduler verb accepts")
    max_inflight_body_bytes: int | None = Field(
        None,
        ge=2**20,
        description="all bodies that are read or processed at the same time; default: twice max_body_bytes",
    )
    connections_limit: int = Field(
        10_000,
        ge=100,
        le=1_000_000,
        description="most open connections; fewer if this process may not open that many files",
    )
    streams_per_client: int = Field(
        16, ge=1, le=1_000_000, description="event streams that one client may have open at the same time"
    )
    streams_per_namespace: int = Field(
        128, ge=1, le=1_000_000, description="event streams that may follow one namespace; as many may follow all"
    )
    streams_limit: int = Field(512, ge=1, le=1_000_000, description="most open event streams, of all clients")
    leader_election: bool = Field(
        False, description="run as one of several replicas: the leader decides, the others wait to take over"
    )
    lease_name: str = Field(
        "escher",
        max_length=200,
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        description="the Lease that names the leader",
    )
    lease_namespace: str | None = Field(
        None,
        max_length=63,
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        description="the namespace of the Lease and of leader_service; default: the pod's",
    )
    service_namespace: str | None = Field(
        None,
        max_length=63,
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        description="where Escher stores what only it may write (TransactionIntents); default: lease_namespace, "
        "else the pod's, else escher-system",
    )
    lease_seconds: int = Field(
        4, ge=2, le=60, description="duration of the Lease: if the leader is killed, no replica decides for this long"
    )
    leader_service: str | None = Field(
        None,
        max_length=63,
        pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$",
        description="a Service without selector; Escher makes it point to the leader. Default: none",
    )
    leader_service_port: str = Field(
        "", max_length=63, pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$", description="the name of that Service's port"
    )
    log_level: str = Field("info", pattern="^(debug|info|warning|error)$")
    log_format: str = Field(
        "text", pattern="^(text|json)$", description="format of a log line: text, or one JSON object"
    )
    tracing: Literal["none", "otlp"] = Field(
        "none",
        description="otlp: send spans of calls, writes and gangs as the OTEL_* environment variables say (needs the "
        "extra otel)",
    )

    @property
    def own_namespace(self) -> str:
        """The namespace for objects that only the service may write."""
        return self.service_namespace or self.lease_namespace or OWN_NAMESPACE


SWITCHES = ("observe_only", "evict_partial_gangs", "gang_preemption", "backfill_reservation")
CHANGEABLE = (*SWITCHES, "isolation")
"""A change of these in the file takes effect at run time; the others need a restart."""


def switches_in(settings: Settings) -> Switches:
    """The safety switch's values in the settings."""
    return Switches(**{name: getattr(settings, name) for name in SWITCHES})


def load_settings(file: Path | None, heard: Callable[[str], None] = lambda said: None, **given: Any) -> Settings:
    """The settings of the file, overridden by the given ones that are not None.

    `heard` is called with a text for each old name in the file. Raises BadSettings.
    """
    values: dict[str, Any] = {}
    if file is not None:
        try:
            read = yaml.safe_load(file.read_text())
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise BadSettings(f"{file}: {error}") from error
        if read is not None and not isinstance(read, dict):
            raise BadSettings(f"{file}: expected a mapping of settings, such as `port: 8080`")
        try:
            values = by_new_names(read or {}, heard)
        except BothNames as error:
            raise BadSettings(f"{file}: {error}") from error
    values |= {name: value for name, value in given.items() if value is not None}
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, e['loc']))} = {e['input']!r}: {e['msg']}" for e in error.errors()]
        raise BadSettings("; ".join(lines)) from error
    _check_tls(settings)
    _check_reach(settings)
    _check_bodies(settings)
    _check_election(settings)
    return settings


def _check_election(settings: Settings) -> None:
    """Requires `leader_election` if `leader_service` is set. Raises BadSettings."""
    if settings.leader_service is not None and not settings.leader_election:
        raise BadSettings(
            f"leader_service = {settings.leader_service!r}: there is no leader without `leader_election: true`; "
            "set that, or remove leader_service"
        )


def _check_bodies(settings: Settings) -> None:
    """Requires room for the largest body in `max_inflight_body_bytes`. Raises BadSettings."""
    all_bodies, one = settings.max_inflight_body_bytes, settings.max_body_bytes
    if all_bodies is not None and all_bodies < one:
        raise BadSettings(
            f"max_inflight_body_bytes = {all_bodies}: it is less than max_body_bytes = {one}, "
            "so the largest body could never be read; set it to that or more"
        )


def _check_tls(settings: Settings) -> None:
    """Requires certificate and key together, and both for `tls_client_ca`. Raises BadSettings."""
    certificate, key, authority = settings.tls_certificate, settings.tls_key, settings.tls_client_ca
    if (certificate is None) != (key is None):
        given = f"tls_certificate = {certificate}" if key is None else f"tls_key = {key}"
        missing = "tls_key" if key is None else "tls_certificate"
        raise BadSettings(f"{given} without {missing}: set both or neither")
    if authority is not None and certificate is None:
        raise BadSettings(
            f"tls_client_ca = {authority}: client certificates require https; "
            "set tls_certificate and tls_key too, or remove it"
        )


def _check_reach(settings: Settings) -> None:
    """Raises BadSettings for a port that others reach without certificate, unless `insecure`."""
    if settings.insecure or settings.tls_client_ca is not None or _is_loopback(settings.host):
        return
    raise BadSettings(
        f"host = {settings.host!r}: other machines reach it and could call kube-scheduler's verbs; set "
        "tls_certificate, tls_key and tls_client_ca, or, if the network blocks other callers, insecure: true "
        "(--insecure)"
    )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
