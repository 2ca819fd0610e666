"""`escher compare`: places gangs by every approach on one control plane, and writes a report."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from extender.cli.common.terminal import Terminal, add_row
from extender.cli.lab.pairs import pairs
from extender.cli.lab.reported import Told, reported
from extender.shipped.errors import WrongUse

if TYPE_CHECKING:
    from lab.compare.plan import Plan
    from lab.compare.reporting.measured import Table as Figures
    from lab.compare.running import Outcome

_MANY = 500
"""With more pods, their creation or deletion takes more than some seconds."""

HELP = """Compare the ways to place a gang, in one run on one control plane; report ratios to plain pods.

Every round runs every approach once, in an order drawn from the seed. The folder keeps the raw data: you can continue
an interrupted run, and make the report again without a run. Exit code 1 if a real control plane contradicts a claim
beyond the interval, or if an approach broke a policy that it must keep.

Example: escher compare --nodes 100 --size 8 --size 64

Example: escher compare --workload contention --workload arrivals --size 8

Example: escher compare --workload burst --gangs 100 --size 3 --approach ungrouped --approach extender

Example: escher compare --workload co-location --workload balancing --workload fair-share --size 8

Example: escher compare --workload trace --trace FOLDER --approach ungrouped --approach extender

Example: escher compare --embedded --quick

Example: escher compare --scheduler-binary coscheduling=../scheduler-plugins/bin/kube-scheduler

Example: escher compare --go-on results/compare-1

Example: escher compare --plot results/compare-1
"""


def compare(
    context: typer.Context,
    embedded: Annotated[bool, typer.Option("--embedded", help="Use the embedded cluster: quick, needs no Go.")] = False,
    nodes: Annotated[
        list[int] | None,
        typer.Option(help="Nodes of a cluster; repeatable. (default: 100, and all of a trace)"),
    ] = None,
    size: Annotated[list[int] | None, typer.Option(help="Members of a gang; repeatable. (default: 8, 64)")] = None,
    workload: Annotated[
        list[str] | None, typer.Option(help="Workload of the cluster; repeatable. (default: single)")
    ] = None,
    sampling: Annotated[
        list[str] | None,
        typer.Option(help="Node sampling of the schedulers: default or off; repeatable. (default: default)"),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", envvar="ESCHER_TRACES", help="Folder with a trace, for the workload trace."),
    ] = None,
    approach: Annotated[
        list[str] | None, typer.Option(help="One of the approaches; repeatable. (default: all common ones)")
    ] = None,
    scheduler_binary: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=PATH", help="The scheduler of an approach other than Kubernetes' or Escher's."),
    ] = None,
    service_config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Settings of the service, as for escher serve --config.")
    ] = None,
    waiting: Annotated[
        int, typer.Option(metavar="GANGS", help="Number of other gangs that wait meanwhile, for nodes of their own.")
    ] = 0,
    gangs: Annotated[
        int | None, typer.Option(help="Gangs of the workload burst, created one after the other. (default: 3000)")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Number of measurements of each. (default: 15)")] = None,
    seed: Annotated[int, typer.Option(help="Random seed of the order within each round.")] = 1,
    quick: Annotated[bool, typer.Option("--quick", help="100 nodes, gangs of 8, 8 rounds: some minutes.")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder of the run. (default: results/compare-TIME)")
    ] = None,
    go_on: Annotated[
        Path | None, typer.Option("--go-on", metavar="FOLDER", help="Continue the run in this folder.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Only make the report of this run again.")] = None,
) -> None:
    from lab.compare.runs import DEFAULT_SAMPLING
    from lab.compare.trials.workloads import GANGS_OF_A_BURST

    given = [name for name, value in (("--out", out), ("--go-on", go_on), ("--plot", plot)) if value is not None]
    with reported():
        if len(given) > 1:
            raise WrongUse(f"{' and '.join(given)}: give one of them")
        if go_on is not None or plot is not None:
            _alone(context)
        if plot is not None:
            folder = plot
        elif go_on is not None:
            folder = _go_on(go_on)
        else:
            chosen = replace(
                _chosen(embedded, nodes, size, workload, approach, scheduler_binary, rounds, seed, quick=quick),
                # Absolute, as the paths of schedulers.
                service_config="" if service_config is None else str(service_config.absolute()),
                trace="" if trace is None else str(trace.absolute()),
                trace_nodes=nodes or (),
                sampling=tuple(dict.fromkeys(sampling or [DEFAULT_SAMPLING])),
                waiting=waiting,
                gangs=GANGS_OF_A_BURST if gangs is None else gangs,
            )
            chosen.check()
            folder = _begin(chosen, out)
        held = _report(folder)
    raise typer.Exit(0 if held else 1)


def _alone(context: typer.Context) -> None:
    """Raises WrongUse if other options are given together with an existing run."""
    given = [
        f"--{name.replace('_', '-')}"
        for name in context.params
        if (source := context.get_parameter_source(name)) is not None and source.name == "COMMANDLINE"
    ]
    besides = [option for option in given if option not in ("--go-on", "--plot")]
    if besides:
        raise WrongUse(f"{' and '.join(besides)}: the existing run has its own; omit it, or start a new run")


def _chosen(
    embedded: bool,
    nodes: list[int] | None,
    sizes: list[int] | None,
    workloads: list[str] | None,
    approaches: list[str] | None,
    scheduler_binaries: list[str] | None,
    rounds: int | None,
    seed: int,
    *,
    quick: bool,
) -> Plan:
    from lab.compare.plan import QUICK, Plan
    from lab.compare.runs import EMBEDDED, REAL
    from lab.compare.trials.approaches import MADE, REAL_ONLY, USUAL

    # Absolute, because a run can be continued from another folder.
    programs = {name: str(Path(path).absolute()) for name, path in pairs(scheduler_binaries)}
    everybody = [each for each in MADE if (each in USUAL or each in programs) and not (embedded and each in REAL_ONLY)]
    usual = QUICK if quick else Plan()
    return replace(
        usual,
        cluster=EMBEDDED if embedded else REAL,
        nodes=usual.nodes if nodes is None else nodes,
        sizes=usual.sizes if sizes is None else sizes,
        workloads=usual.workloads if workloads is None else tuple(dict.fromkeys(workloads)),
        rounds=usual.rounds if rounds is None else rounds,
        approaches=tuple(dict.fromkeys(approaches or everybody)),
        seed=seed,
        scheduler_binaries=programs,
    )


def _go_on(folder: Path) -> Path:
    import uvloop

    from lab.compare import comparing

    with _Bar() as bar:
        uvloop.run(comparing.go_on(folder, bar))
    return folder


def _begin(plan: Plan, out: Path | None) -> Path:
    import uvloop

    from lab.compare import comparing
    from lab.compare.runs import REAL
    from lab.controlplane.processes import binaries

    with Told() as building, _Bar() as bar:
        if plan.cluster == REAL:
            binaries.build(building)
        folder = out or Path("results") / f"compare-{datetime.now(UTC):%Y%m%d-%H%M%S}"
        command = " ".join(["escher", *sys.argv[1:]])
        uvloop.run(comparing.begin(plan, folder, command, bar))
        return folder


class _Bar:
    """The progress and the time left, on standard error; a line each 50 trials if it is a log."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        self._console = Terminal(stderr=True, highlight=False)
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]}"))
        self._progress = Progress(*columns, console=self._console, transient=True)
        self._task = self._progress.add_task("starting", total=None, left="")
        self._seen = 0

    def __enter__(self) -> _Bar:
        if self._console.is_terminal:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def cluster(self, nodes: int) -> None:
        self._progress.update(self._task, description=f"starting a control plane of {nodes} nodes")
        if not self._console.is_terminal:
            self._console.print(f"starting a control plane of {nodes} nodes")

    def taking(self, pods: int) -> None:
        said = f"creating or deleting {pods:,} pods that fill the other nodes"
        self._progress.update(self._task, description=said)
        if not self._console.is_terminal and pods > _MANY:
            self._console.print(said)

    def trial(self, outcome: Outcome, left: int, seconds_left: float) -> None:
        self._seen += 1
        trial = outcome.trial
        said = f"{trial.set_up}, {trial.approach}"
        time_left = f"{left} trials left, about {seconds_left / 60:.0f} min"
        self._progress.update(
            self._task, description=said, total=self._seen + left, completed=self._seen, left=time_left
        )
        if not self._console.is_terminal and self._seen % 50 == 0:
            self._console.print(f"{said}: {time_left}")
        if not outcome.done:
            self._console.print(f"stuck: {said}, round {trial.repetition}")


def _report(folder: Path) -> bool:
    """Writes and prints the report; true if it contradicts no claim and all policies were kept."""
    try:
        from lab.compare.reporting.report import write_report
    except ImportError as error:
        raise WrongUse(f"the report needs the extra `lab` ({error}): pip install 'escher-kubernetes[lab]'") from None
    from lab.compare.reporting.judging import contradicted, judge, not_kept, not_placed
    from lab.compare.reporting.measured import measured
    from lab.compare.reporting.narrative import verdicts
    from lab.compare.runs import Unreadable, read

    try:
        written = write_report(folder)
        figures = measured(read(folder))
    except Unreadable as error:
        raise WrongUse(str(error)) from None
    except OSError as error:
        raise WrongUse(f"{folder}: it has no run ({error.strerror})") from None
    found, broken, unplaced = judge(figures), not_kept(figures), not_placed(figures)
    console = Terminal(highlight=False)
    console.print(_ratios(figures))
    table = Table("claim", "where", "", "ratio, or gangs")
    for row in verdicts(found):
        add_row(table, *row)
    if found:
        console.print(table)
    for each in found:
        for said in each.against:
            console.print(f"left in part: {said} ({each.setting.told})", soft_wrap=True)
    for one in broken:
        where = f"{one.setting.workload}, {one.setting.where}, {one.setting.what}"
        said = f"NOT KEPT by {one.approach}: {where}: in {one.broken} of {one.judged} trials"
        console.print(said, style="bold red", soft_wrap=True)
    for other in unplaced:
        where = f"{other.setting.where}, {other.setting.what}"
        said = f"NOT PLACED by {other.approach}: {where}: in {other.stuck} of {other.trials} trials"
        console.print(said, style="bold red", soft_wrap=True)
    console.print(f"report: {written[0]}, {written[1]}", soft_wrap=True)
    return not (contradicted(found) or broken or unplaced)


def _ratios(figures: Figures) -> Table:
    from lab.compare.reporting.figures import estimate, mean
    from lab.compare.reporting.tables import MS, to_base
    from lab.compare.reporting.wording import interval

    table = Table("where", "approach", "median, ms", "ratio to base", "writes", "stuck")
    for setting, row in figures.items():
        where = setting.told
        for name, each in row.items():
            add_row(
                table,
                where,
                name,
                interval(estimate(each.to_bound), MS),
                to_base(row, name),
                interval(estimate(each.cost("writes"), mean)),
                str(each.stuck),
            )
            where = ""
        table.add_section()
    return table
