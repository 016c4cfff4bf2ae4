"""Published encoder-only models, with the settings of their papers.

Every figure is the number of parameters, a tied matrix counted once.
"""

import dataclasses

from jtransformer.spec.attention import DotProduct
from jtransformer.spec.heads import Embedder, TokenHead
from jtransformer.spec.model import ModelSpec
from jtransformer.spec.norms import LayerNorm
from jtransformer.spec.positions import Learned, Rope
from jtransformer.spec.residual import Dropout
from jtransformer.spec.stacks import Encoder


def bert_base() -> ModelSpec:
    """BERT base (Devlin et al. 2018, sec. 3): 109,482,240 with the pooler, without a head.

    Post-norm, exact GELU, 512 learned positions, two token types, a norm after the embeddings,
    epsilon 1e-12, all biases. What the model returns as `pooled` is the pooler's vector.
    https://arxiv.org/abs/1810.04805
    """
    return _bert(width=768, layers=12, heads=12)


def bert_large() -> ModelSpec:
    """BERT large, settings as `bert_base`: 335,141,888 with the pooler, without a head."""
    return _bert(width=1024, layers=24, heads=16)


def bert_base_mlm() -> ModelSpec:
    """BERT base for masked tokens: 109,514,298 without the pooler.

    Its head is a dense layer, GELU, a norm, and the embedding table with a bias.
    """
    return _for_masked_tokens(bert_base())


def roberta_base() -> ModelSpec:
    """RoBERTa base (Liu et al. 2019): 124,645,632 with the pooler, without a head.

    BERT base with 50,265 tokens, epsilon 1e-5, one token type, and positions that are counted
    from 2. https://arxiv.org/abs/1907.11692
    """
    return dataclasses.replace(
        _bert(width=768, layers=12, heads=12),
        vocabulary=50_265,
        stack=Encoder(token_types=1, pooler=True),
        norm=LayerNorm(epsilon=1e-5),
        position=Learned(max_length=512, first=2),
    )


def roberta_base_mlm() -> ModelSpec:
    """RoBERTa base for masked tokens, its head as of `bert_base_mlm`: 124,697,433."""
    return _for_masked_tokens(roberta_base())


def modernbert_base() -> ModelSpec:
    """ModernBERT base (Warner et al. 2024, sec. 2 and table 4): 149,014,272, without a head.

    Pre-norm without biases, a gate of exact GELU, rotary positions. Every third layer sees all,
    with base 160,000; the others see 64 tokens to each side, with base 10,000. The norm of the
    embeddings is that of the first attention too. https://arxiv.org/abs/2412.13663
    """
    return ModelSpec(
        vocabulary=50_368,
        width=768,
        layers=22,
        heads=12,
        stack=Encoder(),
        attention=DotProduct(window=65, window_pattern="full,window,window"),
        ffn="geglu",
        ffn_width=1152,
        norm=LayerNorm(bias=False),
        position=Rope(theta=160_000.0, window_theta=10_000.0),
        embedding_norm=True,
        first_norm=False,
        head=Embedder(pooling="first", unit_length=False),
        initialization="bert",
    )


def modernbert_base_mlm() -> ModelSpec:
    """ModernBERT base for masked tokens: 149,655,232.

    Its head is a dense layer without bias, GELU, a norm, and the embedding table with a bias.
    """
    head = TokenHead(bias=True, transform=True, transform_bias=False)
    return dataclasses.replace(modernbert_base(), head=head)


def _bert(*, width: int, layers: int, heads: int) -> ModelSpec:
    return ModelSpec(
        vocabulary=30_522,
        width=width,
        layers=layers,
        heads=heads,
        stack=Encoder(token_types=2, pooler=True),
        qkv_bias=True,
        attention_out_bias=True,
        ffn="gelu",
        ffn_width=4 * width,
        ffn_bias=True,
        norm_placement="post",
        norm=LayerNorm(epsilon=1e-12),
        position=Learned(max_length=512),
        embedding_norm=True,
        head=Embedder(pooling="first", unit_length=False),
        dropout=Dropout(embedding=0.1, attention=0.1, residual=0.1),
        initialization="bert",
    )


def _for_masked_tokens(model: ModelSpec) -> ModelSpec:
    assert isinstance(model.stack, Encoder)
    return dataclasses.replace(
        model,
        stack=dataclasses.replace(model.stack, pooler=False),
        head=TokenHead(bias=True, transform=True),
    )
