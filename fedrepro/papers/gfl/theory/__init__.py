"""GFL-APPNP's bounds and identities as plain functions."""
