"""What clients and brokers say to each other over gRPC, by version. Nothing else of Dray is imported here."""
