"""What a private broker uses of this machine: processes, ports and signals."""
