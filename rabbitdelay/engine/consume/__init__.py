"""The consuming connection: receiving jobs, leasing them, and receiving responses."""
