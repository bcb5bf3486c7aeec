"""Acknowledge a job's message, or republish the job for its next attempt."""
