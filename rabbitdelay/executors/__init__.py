"""Handling: handlers at work in threads and processes, for the workers of both fronts."""
