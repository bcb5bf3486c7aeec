"""Deletes: the records of the log, the tombstones they add up to, and snapshots of them."""
