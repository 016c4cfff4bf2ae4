"""Published encoder–decoder models, with the settings of their papers.

Every figure is the number of parameters, a shared matrix counted once.
"""

import dataclasses

from jtransformer.spec.attention import DotProduct
from jtransformer.spec.heads import TokenHead
from jtransformer.spec.model import ModelSpec
from jtransformer.spec.norms import LayerNorm, RMSNorm
from jtransformer.spec.positions import Learned, Sinusoidal, T5Bias
from jtransformer.spec.residual import Dropout
from jtransformer.spec.stacks import EncoderDecoder


def transformer_base(*, vocabulary: int = 37_000) -> ModelSpec:
    """The base model of Vaswani et al. 2017 (table 3): 44,138,496 and vocabulary x 512.

    Six layers in each stack, post-norm, ReLU, sinusoidal positions, embeddings scaled by
    sqrt(width), and one matrix for source, target and head. All projections have biases. Dropout
    0.1 on the embeddings and on every branch; epsilon 1e-6, as in the authors' code.
    https://arxiv.org/abs/1706.03762

    Args:
        vocabulary: Token ids of source and target together; about 37,000 in the paper for
            English to German.
    """
    return ModelSpec(
        vocabulary=vocabulary,
        width=512,
        layers=6,
        heads=8,
        stack=EncoderDecoder(encoder_layers=6),
        qkv_bias=True,
        attention_out_bias=True,
        ffn="relu",
        ffn_width=2048,
        ffn_bias=True,
        norm_placement="post",
        norm=LayerNorm(epsilon=1e-6),
        position=Sinusoidal(),
        scale_embedding=True,
        dropout=Dropout(embedding=0.1, residual=0.1),
        initialization="xavier",
    )


def transformer_big(*, vocabulary: int = 37_000) -> ModelSpec:
    """The big model of Vaswani et al. 2017 (table 3): 176,357,376 and vocabulary x 1024.

    Settings as `transformer_base`, with dropout 0.3, which the paper uses for English to German.

    Args:
        vocabulary: Token ids of source and target together.
    """
    return dataclasses.replace(
        transformer_base(vocabulary=vocabulary),
        width=1024,
        heads=16,
        ffn_width=4096,
        dropout=Dropout(embedding=0.3, residual=0.3),
    )


def bart_base() -> ModelSpec:
    """BART base (Lewis et al. 2019, sec. 2): 139,420,416.

    Post-norm, exact GELU, a norm after the embeddings, 1024 learned positions of each stack, which
    are counted from 2, all biases, one matrix for source, target and head, dropout 0.1.
    https://arxiv.org/abs/1910.13461
    """
    return _bart(width=768, layers=6, heads=12)


def bart_large() -> ModelSpec:
    """BART large, settings as `bart_base`: 406,291,456."""
    return _bart(width=1024, layers=12, heads=16)


def _bart(*, width: int, layers: int, heads: int) -> ModelSpec:
    return ModelSpec(
        vocabulary=50_265,
        width=width,
        layers=layers,
        heads=heads,
        stack=EncoderDecoder(encoder_layers=layers),
        qkv_bias=True,
        attention_out_bias=True,
        ffn="gelu",
        ffn_width=4 * width,
        ffn_bias=True,
        norm_placement="post",
        position=Learned(max_length=1024, first=2),
        embedding_norm=True,
        dropout=Dropout(embedding=0.1, attention=0.1, residual=0.1),
        initialization="bert",
    )


def opus_mt_en_de() -> ModelSpec:
    """OPUS-MT from English to German (Tiedemann and Thottingal 2020), by Marian: 73,944,309.

    The base model of 2017 with SiLU, sines before cosines, 58,101 tokens and a bias of the head.
    https://aclanthology.org/2020.eamt-1.61
    """
    return dataclasses.replace(
        transformer_base(vocabulary=58_101),
        ffn="silu",
        norm=LayerNorm(),
        position=Sinusoidal(layout="split"),
        head=TokenHead(bias=True),
    )


def t5_small() -> ModelSpec:
    """T5 small (Raffel et al. 2019, sec. 3.7): 60,506,624.

    Pre-RMSNorm, ReLU, relative bias with one table in each stack, no biases, scores that are not
    scaled by the head width, and a tied head whose states are scaled by width^-0.5. Dropout 0.1.
    https://arxiv.org/abs/1910.10683
    """
    return _t5(width=512, layers=6, heads=8, ffn_width=2048)


def t5_base() -> ModelSpec:
    """T5 base, settings as `t5_small`: 222,903,552."""
    return _t5(width=768, layers=12, heads=12, ffn_width=3072)


def t5_large() -> ModelSpec:
    """T5 large, settings as `t5_small`: 737,668,096."""
    return _t5(width=1024, layers=24, heads=16, ffn_width=4096)


def t5_v1_1_small() -> ModelSpec:
    """T5 1.1 small: 76,961,152.

    As `t5_small`, with a tanh-GELU gate, a head of its own that is not scaled, other sizes and no
    dropout in pre-training.
    https://github.com/google-research/text-to-text-transfer-transformer/blob/main/released_checkpoints.md
    """
    return _t5_v1_1(_t5(width=512, layers=8, heads=6, ffn_width=1024))


def t5_v1_1_base() -> ModelSpec:
    """T5 1.1 base, settings as `t5_v1_1_small`: 247,577,856."""
    return _t5_v1_1(_t5(width=768, layers=12, heads=12, ffn_width=2048))


def _t5(*, width: int, layers: int, heads: int, ffn_width: int) -> ModelSpec:
    return ModelSpec(
        vocabulary=32_128,
        width=width,
        layers=layers,
        heads=heads,
        head_width=64,
        stack=EncoderDecoder(encoder_layers=layers),
        attention=DotProduct(scale=1.0),
        ffn="relu",
        ffn_width=ffn_width,
        norm=RMSNorm(),
        position=T5Bias(),
        head=TokenHead(scale_down=True),
        dropout=Dropout(embedding=0.1, attention=0.1, ffn=0.1, residual=0.1),
        initialization="t5",
    )


def _t5_v1_1(model: ModelSpec) -> ModelSpec:
    return dataclasses.replace(
        model, ffn="geglu_tanh", head=TokenHead(tied=False), dropout=Dropout()
    )
