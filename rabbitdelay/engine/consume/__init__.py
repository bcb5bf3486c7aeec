"""Receive jobs on a connection and hold their leases."""
