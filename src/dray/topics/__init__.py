"""Topics: their names and configs, and the sagas that make and delete them."""
