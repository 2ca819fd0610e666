"""Actors: who asks for works, who breaks what, and the noisy tenant."""
