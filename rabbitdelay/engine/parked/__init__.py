"""Parked jobs: listing, republishing and dropping buried and unrouted jobs."""
