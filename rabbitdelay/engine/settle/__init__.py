"""Acknowledge held jobs, or republish them, and prove that the broker has applied it."""
