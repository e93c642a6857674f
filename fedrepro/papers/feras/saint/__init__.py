"""GraphSAINT on several hosts: its samplers, what a host holds, its network, and the two methods built on them.

Read the modules in this order: `sampler`, `hosts`, `network`, `method`.
"""
