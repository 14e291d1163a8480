"""The core: seals values, opens them, and compares them with their rows. It alone decides what is returned.

`seal/` decides, without I/O, how values are sealed and which are returned; `sealed/` wraps a saver and calls
`seal/`; `base/sealing.py` tests whether a saver, a store or a cache seals what it stores.

A fault in other packages can lose or omit a value; only a fault here can reveal or forge a value, or accept a
moved one. docs/review.md says in which order to read the modules, and lists the exceptions to this rule.
"""
