"""Everything about keys: ids, states, material, and the ring file that lists them.

The layer above, `sealpoint.crypto`, seals values with them.
"""
