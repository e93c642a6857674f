"""Train a whole federation as one batched program: client graphs, methods, rounds, messages and stacked layers."""
