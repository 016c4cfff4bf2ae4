"""Published decoder-only models, with the settings of their papers.

Where a paper leaves a setting open, the released configuration is followed. Initial values are
normal with deviation 0.02 ("bert") unless a docstring says otherwise. Every figure is the number
of parameters, a tied matrix counted once.
"""

from jtransformer.spec.attention import DotProduct
from jtransformer.spec.heads import TokenHead
from jtransformer.spec.model import ModelSpec
from jtransformer.spec.norms import RMSNorm
from jtransformer.spec.positions import Learned, Rope
from jtransformer.spec.residual import Dropout


def gpt() -> ModelSpec:
    """GPT (Radford et al. 2018, sec. 4.1): 116,534,784 with the tied head.

    Post-norm without a final norm, tanh GELU, 512 learned positions, every dropout 0.1 but that
    of hidden units, all biases.
    https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf
    """
    return ModelSpec(
        vocabulary=40_478,
        width=768,
        layers=12,
        heads=12,
        qkv_bias=True,
        attention_out_bias=True,
        ffn="gelu_tanh",
        ffn_width=3072,
        ffn_bias=True,
        norm_placement="post",
        position=Learned(max_length=512),
        dropout=Dropout(embedding=0.1, attention=0.1, residual=0.1),
        initialization="bert",
    )


def gpt2_small() -> ModelSpec:
    """GPT-2, smallest (Radford et al. 2019, table 2): 124,439,808 with the tied head.

    Pre-norm with a final norm, tanh GELU, 1024 learned positions, all biases, initial values of
    the matrices that write to the stream scaled by depth ("gpt2"). The report names no dropout.
    https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf
    """
    return _gpt2(width=768, layers=12, heads=12)


def gpt2_medium() -> ModelSpec:
    """GPT-2 medium, settings as `gpt2_small`: 354,823,168 with the tied head."""
    return _gpt2(width=1024, layers=24, heads=16)


def gpt2_large() -> ModelSpec:
    """GPT-2 large, settings as `gpt2_small`: 774,030,080 with the tied head."""
    return _gpt2(width=1280, layers=36, heads=20)


def gpt2_xl() -> ModelSpec:
    """GPT-2 XL, settings as `gpt2_small`: 1,557,611,200 with the tied head."""
    return _gpt2(width=1600, layers=48, heads=25)


def _gpt2(*, width: int, layers: int, heads: int) -> ModelSpec:
    return ModelSpec(
        vocabulary=50_257,
        width=width,
        layers=layers,
        heads=heads,
        qkv_bias=True,
        attention_out_bias=True,
        ffn="gelu_tanh",
        ffn_width=4 * width,
        ffn_bias=True,
        position=Learned(max_length=1024),
        initialization="gpt2",
    )


def gpt_j_6b() -> ModelSpec:
    """GPT-J (Wang and Komatsuzaki 2021): 6,050,882,784 with its own biased head.

    Attention and feed-forward read one norm, 64 of the 256 channels of a head turn in the
    "interleaved" pairing, biases in the feed-forward network alone.
    https://github.com/kingoflolz/mesh-transformer-jax
    """
    return ModelSpec(
        vocabulary=50_400,
        width=4096,
        layers=28,
        heads=16,
        ffn="gelu_tanh",
        ffn_width=16_384,
        ffn_bias=True,
        sublayers="parallel_one_norm",
        position=Rope(pairing="interleaved", rotary_fraction=0.25),
        head=TokenHead(tied=False, bias=True),
        initialization="bert",
    )


def pythia_160m() -> ModelSpec:
    """Pythia 160M (Biderman et al. 2023, table 1): 162,322,944 with its own head.

    The GPT-NeoX block (Black et al. 2022): attention and feed-forward side by side with two
    norms, a quarter of each head turns, all biases, exact GELU. 85,056,000 lie in the stack.
    https://arxiv.org/abs/2304.01373, https://arxiv.org/abs/2204.06745
    """
    return ModelSpec(
        vocabulary=50_304,
        width=768,
        layers=12,
        heads=12,
        qkv_bias=True,
        attention_out_bias=True,
        ffn_width=3072,
        ffn_bias=True,
        sublayers="parallel",
        position=Rope(rotary_fraction=0.25),
        head=TokenHead(tied=False),
        initialization="bert",
    )


def llama2_7b() -> ModelSpec:
    """Llama 2, 7B (Touvron et al. 2023, sec. 2.2): 6,738,415,616 with its own head.

    Pre-RMSNorm, SwiGLU, rotary positions, no biases; as many key heads as query heads. The
    pairing is "half", that of converted checkpoints. https://arxiv.org/abs/2307.09288
    """
    return ModelSpec(
        vocabulary=32_000,
        width=4096,
        layers=32,
        heads=32,
        ffn="swiglu",
        ffn_width=11_008,
        norm=RMSNorm(epsilon=1e-5),
        position=Rope(),
        head=TokenHead(tied=False),
        initialization="bert",
    )


def llama3_8b() -> ModelSpec:
    """Llama 3, 8B (Grattafiori et al. 2024, table 3): 8,030,261,248 with its own head.

    As `llama2_7b`, with 8 key and value heads and a rotary base of 500,000.
    https://arxiv.org/abs/2407.21783
    """
    return ModelSpec(
        vocabulary=128_256,
        width=4096,
        layers=32,
        heads=32,
        key_value_heads=8,
        ffn="swiglu",
        ffn_width=14_336,
        norm=RMSNorm(epsilon=1e-5),
        position=Rope(theta=500_000.0),
        head=TokenHead(tied=False),
        initialization="bert",
    )


def gemma_2b() -> ModelSpec:
    """Gemma, 2B (Gemma Team 2024, table 1): 2,506,172,416 with the tied head.

    One key and value head, heads of 256, tanh-GELU gate, norms that store what is added to 1,
    embeddings scaled by sqrt(width). https://arxiv.org/abs/2403.08295
    """
    return ModelSpec(
        vocabulary=256_000,
        width=2048,
        layers=18,
        heads=8,
        key_value_heads=1,
        head_width=256,
        ffn="geglu_tanh",
        ffn_width=16_384,
        norm=RMSNorm(unit_offset=True),
        position=Rope(),
        scale_embedding=True,
        initialization="bert",
    )


def olmo2_1b() -> ModelSpec:
    """OLMo 2, 1B (OLMo Team 2024, sec. 2): 1,484,916,736 with its own head.

    RMS norms on the branches instead of before them, and over the whole width of queries and
    keys; SwiGLU, rotary positions with a base of 500,000. https://arxiv.org/abs/2501.00656
    """
    return ModelSpec(
        vocabulary=100_352,
        width=2048,
        layers=16,
        heads=16,
        attention=DotProduct(query_key_norm="width"),
        ffn="swiglu",
        ffn_width=8192,
        norm_placement="branch",
        norm=RMSNorm(),
        position=Rope(theta=500_000.0),
        head=TokenHead(tied=False),
        initialization="bert",
    )


def qwen3_0_6b() -> ModelSpec:
    """Qwen3, 0.6B (Qwen Team 2025, table 1): 596,049,920 with the tied head.

    RMS norms over each head of queries and keys, heads wider than width / heads, 8 key and value
    heads, SwiGLU, rotary positions with a base of 1,000,000. https://arxiv.org/abs/2505.09388
    """
    return ModelSpec(
        vocabulary=151_936,
        width=1024,
        layers=28,
        heads=16,
        key_value_heads=8,
        head_width=128,
        attention=DotProduct(query_key_norm="head"),
        ffn="swiglu",
        ffn_width=3072,
        norm=RMSNorm(),
        position=Rope(theta=1_000_000.0),
        initialization="bert",
    )
