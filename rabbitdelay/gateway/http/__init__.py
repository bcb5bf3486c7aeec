"""What surrounds every request."""
