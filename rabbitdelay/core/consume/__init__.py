"""Leases: which consumer holds which job, and until when."""
