"""Schemas of custom resources and admission policies, with their CEL rules."""
