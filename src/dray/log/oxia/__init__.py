"""The log in Oxia. Loaded where a log is opened by such a URL: gRPC and XXH3 come with it."""
