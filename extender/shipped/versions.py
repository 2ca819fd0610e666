"""The minor versions of Kubernetes that a real control plane is built of, and what of Kubernetes differs between them.

One entry a minor. Whoever starts a component asks here what its version needs, and compares no versions itself. Reads
ESCHER_KUBERNETES and nothing else; knows no process. To support another minor: a folder with its go.mod, and an entry.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from extender.shipped import places
from extender.shipped.errors import WrongUse

VARIABLE = "ESCHER_KUBERNETES"
"""The environment variable that names the minor where nobody does."""


@dataclass(frozen=True)
class ServedApi:
    """A group and version of kube-apiserver's, as `scheduling.k8s.io/v1alpha2`. `gates`: the feature gates without
    which there is none; with any, it has to be asked for by its name as well."""

    name: str
    gates: Mapping[str, bool] = field(default_factory=dict)

    def switched_on(self) -> str | None:
        """What `--runtime-config` says of it; None: it is served anyway."""
        return f"{self.name}=true" if self.gates else None


@dataclass(frozen=True, kw_only=True)
class Kubernetes:
    """One minor version."""

    minor: str
    """As `1.36`."""
    module: Path
    """The folder of the Go module that names the version, with main packages of kube-apiserver and kube-scheduler."""
    admission_policies: ServedApi
    """MutatingAdmissionPolicy: by which the API server marks pods."""
    native_gangs: ServedApi | None
    """PodGroups of Kubernetes' own, as `escher compare` makes them; None: this minor has no such kind."""

    @property
    def marks_by_default(self) -> bool:
        """Whether the API server marks pods without a feature gate."""
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
        # It has the gates, and another kind: Workload of v1alpha1.
        native_gangs=None,
    ),
)
"""The newest first."""


def chosen(minor: str = "") -> Kubernetes:
    """The minor version that is meant by this name; without one, what ESCHER_KUBERNETES says; else the newest. Raises
    WrongUse."""
    wanted = minor or os.environ.get(VARIABLE, "") or NEWEST.minor
    for each in SUPPORTED:
        if each.minor == wanted:
            return each
    source = "--kubernetes" if minor else VARIABLE
    there = ", ".join(each.minor for each in SUPPORTED)
    raise WrongUse(f"{source} {wanted}: a control plane can be built of {there}; say one of these, as `{NEWEST.minor}`")
