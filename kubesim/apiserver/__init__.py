"""kube-apiserver, played: requests in, answers and watches out, over the objects of `kubesim.store`.

`api` is where a request comes in; what is said to it is in the modules beside it: lists (`reads`), watches, writes with
what is filled in and refused (`admission`, by kind; `schema` and `cel` for custom resources), patches, deletions,
bindings; what kubectl asks for (`discovery`, `tables`, `openapi`, `reviews`); and what Kubernetes has and this has not
(`absent`). `server` puts it on a port, `in_process` behind the service's own connection.
"""
