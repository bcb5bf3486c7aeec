"""Settling leased jobs: finishing them, and republishing those that are given back."""
