"""The one alphabet of array axes, used by every signature, einsum string and local suffix.

It is that of `jax.nn.dot_product_attention`, extended. The residual stream is `B T D`
everywhere; heads are `B T N H`; a mask is `B 1 T S` or `B N T S`, and True means "may look".
Signatures write an axis alone with a leading space (`" D"`), axes that may be 1 with a hash
(`"#B"`), and any number of axes under a lower-case word with a star (`"*batch D"`).
"""

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["ALPHABET"]

ALPHABET: Mapping[str, str] = MappingProxyType(
    {
        "B": "batch",
        "T": "query (target) length",
        "S": "key and value (source) length",
        "D": "model width: the residual stream",
        "N": "query heads",
        "K": "key and value heads; N is a multiple of K",
        "G": "query heads that share one key and value head: N / K",
        "H": "width of one query or key head",
        "Hv": "width of one value head",
        "Hr": "width of the rotary part of a head, where it is kept apart",
        "C": "width of a latent of keys and values, or of the features of linear attention",
        "F": "hidden width of a feed-forward sublayer",
        "V": "vocabulary size; never the value matrix",
        "M": "rows of a table of learned positions or distances",
        "P": "rotation planes of a head: half its rotary width, H / 2 where all of it turns",
        "L": "layers",
        "R": "runs trained together; rows of a matrix product inside `functional`",
    }
)
"""What each letter of a shape stands for."""
