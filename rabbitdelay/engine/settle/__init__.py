"""Settling leased jobs: acknowledging and republishing them, with proof that the broker did so."""
