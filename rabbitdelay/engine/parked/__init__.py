"""Parked jobs: republishing the jobs that could not be routed."""
