"""Acknowledging a job's message, or republishing the job for its next attempt."""
