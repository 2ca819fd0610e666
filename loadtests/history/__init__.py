"""A cluster with a history: others' pods, gangs, budgets, a quota, and an old Escher's leftovers.

Escher is installed, works beside them for a while, is restarted, and is uninstalled. The questions: was anything of
theirs touched, and is the cluster as it was found?

`scene` is that cluster and `course` what happens in it, both as data. `virtual` plays them on the embedded cluster in
virtual time, `control_plane` on a real one. `touches` and `dumps` judge, from the audit log and from all objects before
and after, without the service's help.
"""
