"""Giving jobs back: retried, released and buried jobs, as copies that replace their messages."""
