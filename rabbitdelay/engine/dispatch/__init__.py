"""Dispatch: from a delivery to a running handler, and from its end to the next job."""
