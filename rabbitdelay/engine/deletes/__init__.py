"""Deletes: writing records, keeping those that are known, and checking jobs against them."""
