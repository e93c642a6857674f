"""FedSheafHN: method, protocol, theory, attacks and exhibits."""

NAME = "FedSheafHN"
