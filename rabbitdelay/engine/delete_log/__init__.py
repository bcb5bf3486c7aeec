"""The log of deletes, as one consumer follows it."""
