"""The bounds of every numeric field of every spec, written out apart from the specs."""

import math
import typing

from jtransformer.spec import (
    Adafactor,
    Adam,
    AdamW,
    Classifier,
    Constant,
    DataSpec,
    DotProduct,
    Dropout,
    DynamicTanh,
    Embedder,
    Encoder,
    EncoderDecoder,
    FixedScale,
    LatentAttention,
    LayerScale,
    Layout,
    Learned,
    LinearScaling,
    Lion,
    Llama3Scaling,
    LossSpec,
    MaskedLM,
    ModelSpec,
    Muon,
    Noam,
    NTKScaling,
    OptimizerSpec,
    Patience,
    PrefixLM,
    RelativeBias,
    Rope,
    RunSpec,
    Sgd,
    Shaw,
    SpanCorruption,
    Synthetic,
    T5Bias,
    Tagger,
    TokenHead,
    Trained,
    TrainingSpec,
    WarmupCosine,
    WarmupInverseSqrt,
    WarmupLinear,
    WarmupStableDecay,
    YarnScaling,
)
from jtransformer.spec.norms import Norm

# (spec, field): the nearest values that are refused, and the outermost that are accepted.
TINY, BIG = 2.0**-126, 2**63 - 1  # The smallest number of float32 that XLA does not take for 0.
BELOW_ONE, ABOVE_ONE = math.nextafter(1, 0), math.nextafter(1, 2)
SINGLE_BELOW_ONE = 1 - 2.0**-24  # The neighbour of 1 in float32.
POSITIVE = ((0, -TINY, -1), (TINY, 3e38))
POSITIVE_OR_NONE = ((0, -TINY, -1), (TINY, 3e38, None))
COUNT = ((0, -1), (1, BIG))
LAYERS = ((0, -1, 100_001), (1, 100_000))
COUNT_OR_NONE = ((0, -1), (1, BIG, None))
FROM_ZERO = ((-1,), (0, BIG))
RATE = ((-TINY, 1, BELOW_ONE, 1.5), (0, SINGLE_BELOW_ONE))
SHARE = ((-TINY, ABOVE_ONE), (0, 1))
OPEN_RATE = ((0, -TINY, BELOW_ONE, 1), (TINY, SINGLE_BELOW_ONE))
AT_LEAST_ONE = ((BELOW_ONE, 0), (1, 3e38))
EPSILON = ((0, -1e-5, 1e-2, 1), (TINY, math.nextafter(1e-2, 0)))
ANY = ((), (-3e38, -1, 0, 3e38))
PART = ((0, -0.1, math.nextafter(0.5, 0), 0.5, 1), (TINY, 0.5 - 2.0**-25))
BETAS = {"beta1": RATE, "beta2": RATE}
SCALED = {"factor": AT_LEAST_ONE}
WITH_EPSILON = [kind for kind in typing.get_args(Norm) if "epsilon" in kind.__dataclass_fields__]
TABLE = {
    **{kind: dict(epsilon=EPSILON) for kind in WITH_EPSILON},
    DynamicTanh: dict(alpha=POSITIVE),
    Learned: dict(max_length=COUNT, first=FROM_ZERO),
    LinearScaling: SCALED,
    NTKScaling: SCALED,
    Llama3Scaling: dict(
        factor=AT_LEAST_ONE,
        original_length=COUNT,
        low_frequency_factor=((0, -1), (TINY, 3)),
        high_frequency_factor=((0, -1), (2, 3e38)),
    ),
    YarnScaling: dict(factor=AT_LEAST_ONE, original_length=COUNT),
    Rope: dict(
        theta=((1, 0, -1, ABOVE_ONE), (1 + 2.0**-23, 3e38)),
        window_theta=((1, 0, -1, ABOVE_ONE), (1 + 2.0**-23, 3e38, None)),
        rotary_fraction=((0, -TINY, ABOVE_ONE), (TINY, 1)),
    ),
    T5Bias: dict(buckets=((1, 0), (2, 254)), max_distance=((1, 0), (17, BIG))),
    RelativeBias: dict(max_distance=COUNT),
    Shaw: dict(max_distance=COUNT),
    DotProduct: dict(scale=POSITIVE_OR_NONE, soft_cap=POSITIVE_OR_NONE, window=COUNT_OR_NONE),
    LatentAttention: dict(
        latent_width=COUNT, rotary_width=((1, 0), (2, BIG, None)), value_width=COUNT_OR_NONE
    ),
    Encoder: dict(token_types=COUNT_OR_NONE),
    EncoderDecoder: dict(encoder_layers=LAYERS, source_vocabulary=((1, 0), (2, BIG, None))),
    TokenHead: dict(soft_cap=POSITIVE_OR_NONE),
    Classifier: dict(classes=((1, 0), (2, BIG))),
    Tagger: dict(classes=((1, 0), (2, BIG))),
    Embedder: dict(embedding_width=((0, -1), (2, BIG, None))),
    FixedScale: dict(value=ANY),
    LayerScale: dict(initial=ANY),
    Dropout: dict(embedding=RATE, attention=RATE, ffn=RATE, residual=RATE),
    ModelSpec: dict(
        vocabulary=((1, 0, -256), (2, BIG)),
        width=((1, 0, -64), (4, 4 * (BIG // 4))),
        layers=LAYERS,
        heads=((0, -4), (1, 64)),
        key_value_heads=((0, -1), (1, 4, None)),
        head_width=COUNT_OR_NONE,
        ffn_width=COUNT,
        stream_scale=ANY,
    ),
    Synthetic: dict(
        symbols=((1, 10_001), (2, 10_000)),
        smallest=((0, -1), (1, 12)),
        largest=((0, -1), (4, BIG)),
        examples=((9, 0), (10, BIG)),
        task_seed=((-1, 2**31), (0, 2**31 - 1)),
    ),
    Trained: dict(pieces=((256, 0), (257, BIG))),
    DataSpec: dict(
        length=COUNT,
        source_length=COUNT_OR_NONE,
        validation_fraction=PART,
        test_fraction=PART,
    ),
    PrefixLM: dict(
        smallest_prefix=((0, -TINY, 1), (TINY, 0.75)),
        largest_prefix=((0, -TINY, 1), (0.25, SINGLE_BELOW_ONE)),
    ),
    MaskedLM: dict(
        rate=((0, -TINY, ABOVE_ONE), (TINY, 1)),
        masked=((-TINY, ABOVE_ONE), (0, 0.9)),
        random=((-TINY, ABOVE_ONE), (0, 0.2)),
    ),
    SpanCorruption: dict(density=OPEN_RATE, mean_length=AT_LEAST_ONE),
    LossSpec: dict(label_smoothing=RATE, z_loss=((-TINY,), (0, 3e38)), chunk=COUNT_OR_NONE),
    AdamW: BETAS | dict(epsilon=POSITIVE),
    Adam: BETAS | dict(epsilon=POSITIVE),
    Adafactor: dict(decay_rate=OPEN_RATE, clipping_threshold=POSITIVE_OR_NONE, factored_from=COUNT),
    Lion: BETAS,
    Sgd: dict(momentum=((0, -TINY, 1), (TINY, SINGLE_BELOW_ONE, None))),
    Muon: BETAS | dict(momentum=RATE, iterations=((0, 101), (1, 100)), epsilon=POSITIVE),
    OptimizerSpec: dict(
        learning_rate=POSITIVE,
        weight_decay=((-TINY, -1), (0, 3e38)),
        gradient_clip=POSITIVE_OR_NONE,
    ),
    Constant: dict(warmup_steps=FROM_ZERO),
    WarmupCosine: dict(warmup_steps=FROM_ZERO, final_fraction=SHARE),
    WarmupLinear: dict(warmup_steps=FROM_ZERO, final_fraction=SHARE),
    WarmupInverseSqrt: dict(warmup_steps=COUNT),
    WarmupStableDecay: dict(warmup_steps=FROM_ZERO, decay_steps=COUNT, final_fraction=SHARE),
    Noam: dict(warmup_steps=COUNT),
    Patience: dict(evaluations=COUNT, least_gain=((-TINY,), (0, 3e38))),
    TrainingSpec: dict(
        steps=COUNT,
        batch_size=COUNT,
        microbatches=((0, -1), (1, 16)),
        log_every=COUNT,
        evaluate_every=COUNT,
        checkpoint_every=COUNT,
        evaluation_batch_size=COUNT,
        average_decay=((0, -TINY, BELOW_ONE, 1), (TINY, SINGLE_BELOW_ONE, None)),
    ),
    Layout: dict(data=COUNT, fsdp=COUNT, tensor=COUNT, sequence=COUNT),
    RunSpec: dict(seed=((-1, 2**31), (0, 2**31 - 1))),
}
BOUNDS = {(cls, name): bounds for cls, rows in TABLE.items() for name, bounds in rows.items()}
