"""Compare stored results with published numbers, judge claims, draw exhibits and run notebooks."""
