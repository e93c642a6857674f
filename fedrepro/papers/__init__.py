"""One folder for each paper, with the same names in the same order; no paper imports another one."""
