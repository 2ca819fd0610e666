"""Trials: pods and gangs placed by each approach, and what is done to them."""
