"""Contracts: ports, effects, values and messages that the packages of the application share."""
