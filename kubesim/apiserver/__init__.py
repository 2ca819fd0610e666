"""The API server: takes requests and returns answers and watches, over objects of `machinery.store`.

`api` receives each request. The modules beside it answer it: lists (`reads`), watches, writes with defaults and
validation (`admission`, by kind; `schema` and `cel` for custom resources), patches, deletions, bindings, and what
kubectl asks for (`discovery`, `tables`, `openapi`, `reviews`). `absent` lists what Kubernetes has and this server has
not. `server` puts it on a port, `in_process` behind the service's own connection.
"""
