"""A cluster with a history: other schedulers' pods and gangs, budgets, a quota, and what an earlier installation left.

Escher is put into it, does its work beside them for a while, is started anew, and is uninstalled. What is asked: was
anything of theirs touched, and is the cluster as it was found?

`scene` is that cluster and `course` what happens in it, both as data; `virtual` plays them on the embedded cluster in
virtual time, `control_plane` on a real one. `touches` and `dumps` judge, from the audit log and from what all objects
say before and after: they ask nothing of the service.
"""
