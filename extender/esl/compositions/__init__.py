"""Policies for applications that are made of others."""
