"""Run handlers in threads and processes, for the workers of both front ends."""
