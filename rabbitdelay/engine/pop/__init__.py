"""Serve `pop` calls: one job, or several, at a time."""
