"""The embedded cluster: an API server, a kube-scheduler, kubelets and controllers in one process.

It needs only Python, and acts like the real components as far as Escher, kubectl and the `kubernetes` client use them.
The cases of tests/conformance run against both. Time is the event loop's, which may be virtual, and randomness comes
from one seed. Only `__main__` and `local` read the machine's clock.
"""
