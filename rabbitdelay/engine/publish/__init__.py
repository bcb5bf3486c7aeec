"""Publish messages and wait for the broker's confirms."""
