"""The log of deletes: writing records, reading them, and looking up whether a job is deleted."""
