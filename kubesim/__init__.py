"""The embedded cluster: an API server, a kube-scheduler, kubelets and controllers in one process.

For those who have Python and nothing else. They say and do what the real ones do in all that Escher, kubectl and
the `kubernetes` client use; the cases of tests/conformance run against both. Nothing here reads the machine's clock or
draws at random by itself: time is the event loop's, which may be virtual, and randomness comes from one seed.
"""
