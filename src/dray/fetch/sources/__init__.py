"""Where batches come from, one module for each kind of object; `dray.fetch.sources.by_kind` brings them together."""
