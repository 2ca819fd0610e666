"""Load: runs Locust's load on a service in its own cluster, then checks and reports the result.

`python -m loadtests.load`, which `make loadtest` calls, combines these modules:

    plan, run        check the options; start a cluster and Locust, wait, and check what is left
    invariants       what must hold when no client calls any more
    samples          memory, files and CPU of the service, over time
    holdings         what the service's ledger holds, over time
    flat             the arithmetic of whether something grew
    soak             what of a run is judged by `flat`
    report           Markdown, HTML and plots, from the files of a run alone

These run in Locust's own process, and so need only the standard library:

    shapes           how many users there are at a time
    pace             how many verbs a second
    timings          durations of calls, in files that do not grow with their number
    placing          pods that exist, and the calls of kube-scheduler for them
    managing         calls of the management API
    users            Locust's users for both; users of recorded calls are in loadtests/locustfile.py
"""
