"""Callers of the gateway and their rights."""
