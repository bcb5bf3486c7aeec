"""Handlers in child processes, which are killed when a job's lease is lost."""
