"""The harm witness: was everything that the service destroyed allowed, and did nothing that ran go without a cause?

It shares no code with the service, and imports nothing of it: it reads what the API server's watches tell of pods,
nodes, PodGroups, PodDisruptionBudgets and namespaces (`lab.controlplane.witness`, which imports nothing of the
service either), and what its audit log tells of who asked for what. From these alone it says whether each eviction was
allowed by issue 11, points 2, 3 and 5 ("First do no harm").

In a simulation in virtual time:

    async with Simulation(...) as simulation:
        witness = attach(simulation)             # loadtests.harm.embedded; before there are pods, or at any time later
        ...
        witness.interrupted(simulation.clock.now())    # whenever the service is killed: its last words may be lost
        ...
        witness.finish(simulation.clock.now())
        assert not witness.violations(), "\\n".join(map(str, witness.violations()))

Who asks is told by user names. In `lab.simulation` the service is `escher`, and whoever calls `Simulation.ask` is
`admin`. A new life of the service on the same cluster needs `InProcess(..., user="escher")`; a driver that plays
controllers may use any other name, all of which are owners and users to the witness.

On a control plane of its own, real or embedded: `loadtests.harm.control_plane`. What is judged: `witness.HarmWitness`.
"""
