"""Actors: the people, controllers, machines and schedulers of a cluster's life."""
