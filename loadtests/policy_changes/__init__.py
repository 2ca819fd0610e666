"""Policies that change under load: each decision is judged, and each wake is waited for, from outside.

`rules` is what policies mean, as the documentation has it; `history` what was seen, and the verdict on each Binding;
`drawing` what is done; `yard` and `desk` do it, in namespaces of their own; `run` is all of it. None of them shares
code with the service, which is known by HTTP alone.
"""
