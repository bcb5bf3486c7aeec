"""`python -m rabbitdelay`: the command line."""

from rabbitdelay.cli import main

main()
