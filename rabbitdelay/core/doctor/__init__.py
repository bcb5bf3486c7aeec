"""Facts about a broker, and the checks that `rabbitdelay doctor` makes on them."""
