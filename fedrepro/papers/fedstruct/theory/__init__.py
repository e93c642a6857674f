"""FedStruct's bounds and identities as plain functions."""
