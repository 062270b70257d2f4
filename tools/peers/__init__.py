"""Real servers and clients from outside PyPI, fetched once and run on 127.0.0.1."""
