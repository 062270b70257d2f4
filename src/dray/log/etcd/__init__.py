"""The log in etcd. Loaded where a log is opened by such a URL: gRPC comes with it."""
