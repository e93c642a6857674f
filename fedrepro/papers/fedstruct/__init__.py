"""FedStruct: method, protocol, theory, attacks and exhibits."""

NAME = "FedStruct"
