"""Virtual time, and the callbacks that run in it."""
