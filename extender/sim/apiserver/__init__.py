"""kube-apiserver, played: requests in, answers and watches out, over the objects of `sim.store`.

`api` is where a request comes in; what is said to it is in the modules beside it: lists (`reads`), watches, writes with
what is filled in and refused (`admission`, by kind), patches, deletions, bindings; and what kubectl asks for
(`discovery`, `tables`, `openapi`). `server` puts it on a port, `in_process` behind the service's own connection.
"""
