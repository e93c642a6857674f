"""The published methods, one file each, read beside the paper's algorithm.

`base.Method` is what they share; `fedrepro.registry` is where they are listed.
"""
