"""Layers around every HTTP request, before and after its routes."""
