"""Ports, effects, values and messages that the rooms of the application share."""
