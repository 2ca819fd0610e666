"""A real control plane on loopback ports, for tests, demonstrations and measurements.

Knows: how to build and run etcd, kube-apiserver, kube-scheduler, kube-controller-manager and kwok, and how to
end all of them whatever happens to the one who asked. Must not know: what Escher decides; the service is one more
child process here, reached over HTTP like everything else.

Start reading at `cluster.RealCluster`; `supervisor` is the process that owns the children.
"""
