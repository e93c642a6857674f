"""GFL-APPNP: method, protocol, theory, attacks and exhibits."""
