"""Facts about a broker, and the findings that `rabbitdelay doctor` draws from them."""
