"""The process that owns all others of one cluster: `python -m lab.controlplane.processes.supervisor`.

Reads a ClusterSpec as the first line of standard input, then commands; writes events to standard output (`protocol`).
Standard input is also the lifeline: when it ends, the owner is gone, and everything stops. After `detach` only SIGTERM
ends it. If this process is killed outright, the kernel kills its children (`children`).

               spec            all usable         shutdown, SIGTERM, lifeline cut
    (start) ---------> starting ----------> ready --------------------------------> stopping --> (end)
                          |   a component died or was late: event `failed`             ^
                          +-------------------------------------------------------------+

Single-threaded; every wait goes through `_pause`, which receives commands and notices a request to end.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import ssl
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec

from extender.shipped import crds, loopback, versions
from extender.shipped.errors import ClusterError, PortTaken
from lab.controlplane import marking
from lab.controlplane.processes import children as child_processes
from lab.controlplane.processes import components, credentials, folders, ports, state
from lab.controlplane.processes.components import ClusterSpec, Component
from lab.controlplane.processes.protocol import Command, Event

_LOOK_ROUND = 0.5
_PROBE_EVERY = 0.03


class Ending(Exception):
    """The owner, a command or a signal requested the end of this cluster."""


class Supervisor:
    """One cluster from start to end; `run` returns the exit code."""

    def __init__(self, spec: ClusterSpec, commands: int, unread: bytes) -> None:
        self._spec = spec
        self._folder = Path(spec.folder)
        self._commands: int | None = commands
        self._unread = unread
        self._owner: int | None = os.getppid()
        self._wants_to_end = False
        self._waiting_commands: list[Command] = []
        self._children = child_processes.Children(self._folder / "logs")
        self._planned: list[Component] = []
        self._began: dict[str, float] = {}
        """The time of each component's last start, in seconds of the monotonic clock."""
        self._wake = self._listen_to_signals()

    def run(self) -> int:
        with contextlib.ExitStack() as for_life:
            try:
                for_life.enter_context(folders.claimed(self._folder))
                self._prepare()
                self._boot()
                self._state.phase = "ready"
                self._save()
                self._say(Event("ready", state=self._state))
                self._serve()
            except Ending:
                pass
            except ClusterError as error:
                self._say(Event("failed", message=str(error), port_taken=isinstance(error, PortTaken)))
                return 1
            finally:
                if self._planned:
                    self._end()
        return 0

    # -- start ---------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Creates ports, credentials and files; starts nothing."""
        folders.emptied(self._folder)
        # For errors of this Python program itself; after `detach` it may not use the terminal.
        with self._children.log_of("supervisor").open("ab") as log:
            os.dup2(log.fileno(), 2)
        with folders.choosing_ports(self._folder) as taken:
            chosen = ports.choose(components.port_names(self._spec), avoid=taken)
            self._state = state.ClusterState(
                kind=self._spec.kind,
                name=self._spec.name,
                phase="starting",
                kubeconfig=str(self._folder / "kubeconfig"),
                api_url=f"https://127.0.0.1:{chosen['kube-apiserver']}",
                service_url=f"http://127.0.0.1:{chosen[components.SERVICE]}",
                ports=chosen,
                supervisor=state.identify("supervisor", os.getpid()),
            )
            self._save()
        made = credentials.make(self._folder / "pki")
        server = self._state.api_url
        folders.write_kubeconfig(Path(self._state.kubeconfig), self._spec, server=server, made=made)
        own = credentials.write_component_kubeconfigs(
            self._folder / "pki", context=f"escher-{self._spec.name}", server=server, credentials=made
        )
        self._planned = components.plan(self._spec, ports=chosen, credentials=made, kubeconfigs=own)
        self._trust = ssl.create_default_context(cafile=str(made.ca_certificate))
        self._token = made.token

    def _boot(self) -> None:
        wanted = [each for each in self._planned if each.stage != "service" or self._spec.service]
        if self._spec.kind == "embedded":
            # Both at once: the API server mostly answers by the time the service is loaded from disk. If it does not,
            # the service asks again.
            self._launch(wanted)
        for stage in components.STAGES:
            batch = [each for each in wanted if each.stage == stage]
            if self._spec.kind == "real":
                # etcd must be usable first: a kube-apiserver that does not find it pauses before it tries again.
                self._launch(batch)
            self._await_usable(batch)
            if stage == "api":
                self._say(Event("api", state=self._state))
                more = [Path(file) for file in self._spec.definitions]
                if self._spec.marks:
                    api = versions.chosen(self._spec.kubernetes).admission_policies.name
                    marking.apply(self._state.api_url, api=api, trust=self._trust, token=self._token)
                crds.establish(self._state.api_url, trust=self._trust, token=self._token, pause=self._pause, more=more)
        if self._spec.marks:
            marking.await_force(self._state.api_url, trust=self._trust, token=self._token, pause=self._pause)

    def _start(self, component: Component) -> None:
        """Starts it and waits until it is usable. Raises ClusterError as `_await_usable`."""
        self._launch([component])
        self._await_usable([component])

    def _launch(self, batch: list[Component]) -> None:
        """Starts all of the batch."""
        for component in batch:
            self._say(Event("starting", component=component.name))
            self._began[component.name] = time.monotonic()
            self._children.start(component)
        self._save()

    def _await_usable(self, batch: list[Component]) -> None:
        """Waits until all are usable. Raises ClusterError once one has ended or is too late."""
        waiting = list(batch)
        while waiting:
            self._note_ended(starting=batch)
            for component in list(waiting):
                took = time.monotonic() - self._began[component.name]
                if self._is_usable(component):
                    waiting.remove(component)
                    self._say(Event("usable", component=component.name, seconds=took))
                elif took > component.ready_within:
                    raise ClusterError(
                        f"{component.name} did not become usable within {component.ready_within:.0f} s\n"
                        + self._log_excerpt(component.name)
                    )
            if waiting:
                self._pause(_PROBE_EVERY)

    def _note_ended(self, *, starting: list[Component]) -> None:
        """Raises ClusterError if one of `starting` ended, or any one before phase `ready`."""
        for name, code in self._children.ended().items():
            how = child_processes.describe_exit(code)
            self._state.ended[name] = how
            self._save()
            if self._state.phase == "starting" or name in {each.name for each in starting}:
                raise self._died_at_start(name, how)
            self._say(Event("ended", component=name, message=how))

    def _is_usable(self, component: Component) -> bool:
        try:
            status, _ = loopback.ask("GET", component.ready_url, trust=self._trust, token=self._token, timeout=2)
        except loopback.Unreachable:
            return False
        return status == 200

    def _died_at_start(self, name: str, how: str) -> ClusterError:
        message = f"{name} ended while the cluster was starting: {how}\n{self._log_excerpt(name)}"
        if child_processes.says_port_taken(self._children.log_end(name)):
            return PortTaken(message)
        return ClusterError(message)

    def _log_excerpt(self, name: str) -> str:
        end = self._children.log_end(name) or "(it wrote nothing)"
        return f"the end of its log ({self._children.log_of(name)}):\n{end}"

    # -- service -------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        """Carries out commands until the end is requested."""
        while True:
            while self._waiting_commands:
                self._carry_out(self._waiting_commands.pop(0))
            self._note_ended(starting=[])
            self._pause(_LOOK_ROUND)

    def _carry_out(self, command: Command) -> None:
        try:
            if command.do == "detach":
                self._say(Event("reply"))
                self._detach()
                return
            component = next((each for each in self._planned if each.name == command.name), None)
            running = command.name in self._children.pids
            if component is None:
                names = ", ".join(each.name for each in self._planned)
                raise ClusterError(f"no component is called {command.name!r}; there are {names}")
            if command.do == "start":
                if running:
                    raise ClusterError(f"{command.name} runs already")
                self._state.ended.pop(command.name, None)
                self._start(replace(component, argv=(*component.argv, *command.arguments)))
            elif not running:
                raise ClusterError(f"{command.name} does not run")
            elif command.do == "stop":
                self._children.stop({component.name: component.stop_within}, pause=self._rest)
            else:
                self._children.send(component.name, command.signal)
                if command.signal == signal.SIGKILL:
                    self._children.stop({component.name: component.stop_within}, pause=self._rest)
        except (ClusterError, OSError) as error:
            self._say(Event("reply", message=str(error)))
        else:
            self._save()
            self._say(Event("reply"))

    def _detach(self) -> None:
        """Gives up the lifeline and the events' reader: from now on there is no owner."""
        self._commands = self._owner = None
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)

    # -- end -----------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        """Stops all children; removes files but the logs, and these too if the owner is gone."""
        self._state.phase = "stopping"
        self._save()
        for group in child_processes.in_order(self._planned):
            self._children.stop(group, pause=self._rest)
        folders.cleared(self._folder, self._spec, and_logs=self._spec.owned and self._owner_is_gone())

    def _owner_is_gone(self) -> bool:
        return self._owner is not None and os.getppid() != self._owner

    # -- plumbing ------------------------------------------------------------------------------------------------

    def _listen_to_signals(self) -> int:
        read, write = os.pipe()
        os.set_blocking(read, False)
        os.set_blocking(write, False)
        # Every signal makes `_pause` return at once; the handlers only record the request to end.
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note_wish_to_end)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        return read

    def _note_wish_to_end(self, *_: object) -> None:
        self._wants_to_end = True

    def _pause(self, seconds: float) -> None:
        """Waits for the time or an event. Raises Ending if the end is requested."""
        self._wait_for_something(seconds)
        # A forked child of the owner may hold a copy of the owner's descriptor, so that the lifeline does not end.
        if self._wants_to_end or self._owner_is_gone():
            raise Ending

    def _rest(self, seconds: float) -> None:
        """As `_pause`, but never raises Ending, for work that must be finished first."""
        self._wait_for_something(seconds)

    def _wait_for_something(self, seconds: float) -> None:
        watched = [self._wake] + ([] if self._commands is None or self._wants_to_end else [self._commands])
        ready, _, _ = select.select(watched, [], [], seconds)
        if self._wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake, 4096)
        if self._commands in ready and self._commands is not None:
            received = os.read(self._commands, 65536)
            if not received:
                self._wants_to_end = True
            *lines, self._unread = (self._unread + received).split(b"\n")
            for command in decoded(lines):
                if command.do == "shutdown":
                    self._wants_to_end = True
                self._waiting_commands.append(command)

    def _say(self, event: Event) -> None:
        # The reader may be gone; the lifeline shows that, not this pipe.
        with contextlib.suppress(OSError):
            os.write(1, msgspec.json.encode(event) + b"\n")

    def _save(self) -> None:
        running = self._children.pids.items()
        self._state.processes = [state.identify(name, pid) for name, pid in running]
        state.write(self._folder, self._state)


def decoded(lines: list[bytes]) -> Iterator[Command]:
    return (msgspec.json.decode(line, type=Command) for line in lines if line.strip())


def main() -> int:
    """Reads the spec from standard input and runs that cluster to its end."""
    received = b""
    while b"\n" not in received:
        more = os.read(0, 65536)
        if not more:
            return 2
        received += more
    first, _, rest = received.partition(b"\n")
    spec = msgspec.json.decode(first, type=ClusterSpec)
    return Supervisor(spec, commands=0, unread=rest).run()


if __name__ == "__main__":
    sys.exit(main())
