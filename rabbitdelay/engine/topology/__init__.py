"""Declare the queues that messages and consumers need."""
