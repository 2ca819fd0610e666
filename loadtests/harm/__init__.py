"""Harm: judges the service's evictions, and finds healthy pods that left without a cause.

It shares no code with the service, and imports nothing of it (`lab.controlplane.witness` imports nothing of it
either). It reads the API server's watches of pods, nodes, PodGroups, PodDisruptionBudgets and namespaces. It also reads
the audit log, which has the user of each request. From these alone it says whether each eviction was allowed by issue
11, points 2, 3 and 5 ("First do no harm").

In a simulation in virtual time:

    async with Simulation(...) as simulation:
        witness = attach(simulation)             # loadtests.harm.embedded; before there are pods, or at any time later
        ...
        witness.interrupted(simulation.clock.now())    # at each kill of the service: its last Events may be lost
        ...
        witness.finish(simulation.clock.now())
        assert not witness.violations(), "\\n".join(map(str, witness.violations()))

The witness goes by user names. In `lab.simulation` the service is `escher`, and `Simulation.ask` uses `admin`. A
new life of the service on the same cluster needs `InProcess(..., user="escher")`. A driver that plays controllers may
use any other name; the witness takes all of them for owners and users.

On a control plane, real or embedded: `loadtests.harm.control_plane`. What is judged: `witness.HarmWitness`.
"""
