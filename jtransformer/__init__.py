"""Ablations of Transformers on JAX: does this change help, by how much, and how sure are we?

Importing this package has no effect and loads nothing; import what you need from its parts:
`jtransformer.functional` (arrays in, arrays out), `jtransformer.modules` (linen),
`jtransformer.spec` (what to build), `jtransformer.training` (runs) and so on.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
"""The version of the package, as releases and records have it."""
