"""Handlers: what they are called with, which runs next, and what their result means."""
