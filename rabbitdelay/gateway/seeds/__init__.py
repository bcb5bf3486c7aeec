"""The protocols of the systems that came before."""
