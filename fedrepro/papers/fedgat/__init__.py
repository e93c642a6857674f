"""FedGAT: method, protocol, theory, attacks and exhibits."""

NAME = "FedGAT"
