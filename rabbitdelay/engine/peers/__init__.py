"""Messages between the clients of one namespace. Only clients that ask for it take part."""
