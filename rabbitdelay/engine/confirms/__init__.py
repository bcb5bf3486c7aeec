"""Confirms: what the broker answers to published messages, and what follows."""
