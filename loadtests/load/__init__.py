"""Load: Locust's load on a service, in a cluster of its own, and what is checked and told at its end.

`python -m loadtests.load`, which `make loadtest` calls, puts it together:

    run, cluster     start a cluster and Locust, wait, and look at what is left
    invariants       what must hold when nobody asks any more
    samples          memory, files and CPU of the service, over time
    holdings         what is held in its ledger, over time
    flat             the arithmetic of whether something grew
    soak             what is judged by it, of a run
    report           Markdown, HTML and plots, from the files of a run alone

In Locust's own process, and so with the standard library alone:

    shapes           how many users there are at a time
    pace             how many verbs a second
    timings          how long calls take, in files that do not grow with their number
    placing          pods that exist, and what kube-scheduler would ask for them
    managing         calls of the management API
    users            who does that, as Locust's users; those of the recorded calls are in loadtests/locustfile.py
"""
