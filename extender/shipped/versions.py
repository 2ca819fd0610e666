"""The supported minor versions of Kubernetes for a real control plane, and their differences.

There is one entry a minor. Callers read their version's needs here and compare no versions. The only environment
variable read is ESCHER_KUBERNETES. To support another minor, add a folder with its go.mod, and an entry.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from extender.shipped import places
from extender.shipped.errors import WrongUse

VARIABLE = "ESCHER_KUBERNETES"
"""The environment variable with the default minor version."""


@dataclass(frozen=True)
class ServedApi:
    """An API group and version, as `scheduling.k8s.io/v1alpha2`, and the feature gates it needs.

    With `gates`, kube-apiserver serves it only if these are set and `--runtime-config` names it."""

    name: str
    gates: Mapping[str, bool] = field(default_factory=dict)

    def switched_on(self) -> str | None:
        """Its entry for `--runtime-config`; None: it is served by default."""
        return f"{self.name}=true" if self.gates else None


@dataclass(frozen=True, kw_only=True)
class Kubernetes:
    """One minor version."""

    minor: str
    """For example `1.36`."""
    module: Path
    """The Go module of that version, with main packages of kube-apiserver and kube-scheduler."""
    admission_policies: ServedApi
    """The API of MutatingAdmissionPolicy, by which the API server marks pods."""
    native_gangs: ServedApi | None
    """Kubernetes' own PodGroups, which `escher compare` creates; None: this minor has none."""

    @property
    def marks_by_default(self) -> bool:
        """Whether the API server can mark pods without a feature gate."""
        return not self.admission_policies.gates


NEWEST = Kubernetes(
    minor="1.36",
    module=places.GO_MODULE,
    admission_policies=ServedApi("admissionregistration.k8s.io/v1"),
    native_gangs=ServedApi("scheduling.k8s.io/v1alpha2", {"GenericWorkload": True, "GangScheduling": True}),
)
SUPPORTED = (
    NEWEST,
    Kubernetes(
        minor="1.35",
        module=places.GO_MODULE.with_name("go-1.35"),
        admission_policies=ServedApi("admissionregistration.k8s.io/v1beta1", {"MutatingAdmissionPolicy": True}),
        # This minor has the gates, but another kind: Workload of v1alpha1.
        native_gangs=None,
    ),
)
"""The newest first."""


def chosen(minor: str = "") -> Kubernetes:
    """The entry of `minor`, else of ESCHER_KUBERNETES, else the newest. Raises WrongUse."""
    wanted = minor or os.environ.get(VARIABLE, "") or NEWEST.minor
    for each in SUPPORTED:
        if each.minor == wanted:
            return each
    source = "--kubernetes" if minor else VARIABLE
    there = ", ".join(each.minor for each in SUPPORTED)
    raise WrongUse(f"{source} {wanted}: a control plane can be built of {there}; say one of these, as `{NEWEST.minor}`")
