"""Each paper's bounds and identities as plain functions, one file per paper."""
