"""What the gateway does to every HTTP request, before and after its routes."""
