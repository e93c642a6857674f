"""Turn the name of a data set into one PyG `Data`, prepare and split it, and partition it among clients."""
