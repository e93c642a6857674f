"""GFL-APPNP. Read method, exchange, clients and data first, then protocol, theory, attack and exhibits."""

NAME = "GFL-APPNP"
