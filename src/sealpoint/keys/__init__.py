"""Everything about keys: ids, states, material, and the ring file that lists them.

Sealing values is the task of `sealpoint.crypto`, the layer above.
"""
