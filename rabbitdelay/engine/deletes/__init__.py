"""Write the log of deletes, follow it, and answer whether a job is deleted."""
