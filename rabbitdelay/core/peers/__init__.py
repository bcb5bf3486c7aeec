"""Peers: the clients of one namespace that exchange messages."""
