"""GFL-APPNP: method, protocol, theory, attacks and exhibits."""

NAME = "GFL-APPNP"
