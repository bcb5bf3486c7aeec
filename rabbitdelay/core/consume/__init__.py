"""Leases: which jobs this process has reserved, and until when."""
