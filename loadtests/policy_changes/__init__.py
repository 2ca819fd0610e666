"""Policies change under load; each decision is judged, and each wake is awaited, from outside.

`rules` is the meaning of policies in the documentation; `history` what was seen, and the verdict on each Binding;
`drawing` draws changes and pods; `yard` and `desk` apply them, in namespaces of their own; `run` combines all. None of
them shares code with the service, which they use by HTTP only.
"""
