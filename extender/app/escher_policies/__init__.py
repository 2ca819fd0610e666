"""EscherPolicies: their objects and status, and the policies that run as an ESL in the service."""
