"""A real control plane on loopback ports, for tests, demonstrations and measurements.

Builds and runs etcd, kube-apiserver, kube-scheduler, kube-controller-manager and kwok. All of them end when the process
that started them ends, however it ends. Escher's service is one more child process, reached over HTTP.

Start reading at `cluster.RealCluster`; `supervisor` is the process that owns the children.
"""
