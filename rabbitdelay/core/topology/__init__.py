"""Exchanges and queues: the ladder, what is declared, and the route of a job through it."""
