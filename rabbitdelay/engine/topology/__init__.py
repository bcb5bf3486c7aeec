"""Declare queues, and query the broker about them."""
