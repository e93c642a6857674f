"""Check FedStruct's bounds and identities as plain functions of a `Run`."""
