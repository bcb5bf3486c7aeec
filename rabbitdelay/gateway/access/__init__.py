"""Who calls the gateway, and what the caller may do."""
