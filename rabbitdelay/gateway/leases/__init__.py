"""Leases: what a client over HTTP holds, and how it settles it."""
