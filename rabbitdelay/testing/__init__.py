"""Testing support: a broker in memory with a virtual clock."""
