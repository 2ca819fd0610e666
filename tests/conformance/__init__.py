"""Cases that run on the embedded and on the real control plane, with the same assertions."""
