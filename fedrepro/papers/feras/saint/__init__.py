"""GraphSAINT, on which Feras builds: its samplers, its method, and hosts that hold parts of a graph."""
