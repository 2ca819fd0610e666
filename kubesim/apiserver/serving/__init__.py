"""Requests and answers: sockets, discovery, audit, faults."""
