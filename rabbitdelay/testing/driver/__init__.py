"""The engine's transport interface, implemented on the model of the broker."""
