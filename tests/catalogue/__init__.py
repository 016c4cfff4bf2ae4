"""The one table of every variant of `jtransformer.functional`: a new variant is one row."""

from catalogue import (
    activations,
    analysis,
    attention,
    attention_variants,
    embedding,
    feed_forward,
    generation,
    losses,
    norms,
    positions,
    residual,
)

CATALOGUE = {
    **activations.ROWS,
    **analysis.ROWS,
    **attention.ROWS,
    **attention_variants.ROWS,
    **embedding.ROWS,
    **feed_forward.ROWS,
    **generation.ROWS,
    **losses.ROWS,
    **norms.ROWS,
    **positions.ROWS,
    **residual.ROWS,
}
