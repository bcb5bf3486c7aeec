"""The parts of this machine that a private broker uses: processes, ports and signals."""
