"""Tiny random models of families with an encoder, as `transformers` builds them.

No two sizes of a model are equal, its stacks differ in depth, and norms and biases hold random
values: a swapped axis, a norm that is left out or a bias read as zero changes the result.
"""

import functools
import math
from typing import Any

import numpy as np

MASK, START = 4, 2
"""Ids that stand for a masked token and for the beginning of a target."""


def bert(**changes: Any) -> Any:
    """Returns BERT with its head for masked tokens: 3 token types, as no default has."""
    import transformers

    config = transformers.BertConfig(**(_BERT | dict(type_vocab_size=3) | changes))
    return filled(transformers.BertForMaskedLM(config))


def bert_pooled(**changes: Any) -> Any:
    """Returns BERT without a head, with the pooler."""
    import transformers

    config = transformers.BertConfig(**(_BERT | dict(type_vocab_size=2) | changes))
    return filled(transformers.BertModel(config))


def roberta(**changes: Any) -> Any:
    """Returns RoBERTa with its head for masked tokens; its table has rows of no position."""
    import transformers

    given = dict(pad_token_id=1, type_vocab_size=1, layer_norm_eps=1e-5, max_position_embeddings=41)
    config = transformers.RobertaConfig(**(_BERT | given | changes))
    return filled(transformers.RobertaForMaskedLM(config))


def modernbert(**changes: Any) -> Any:
    """Returns ModernBERT with its head for masked tokens: a window of 3 to either side."""
    import transformers

    given = dict(
        vocab_size=53,
        hidden_size=24,
        intermediate_size=20,
        num_hidden_layers=5,
        num_attention_heads=3,
        local_attention=6,
        rope_parameters={
            "full_attention": {"rope_type": "default", "rope_theta": 160_000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
        },
        max_position_embeddings=64,
        norm_eps=1e-4,
        **_SPECIAL,
    )
    config = transformers.ModernBertConfig(**(given | changes))
    return filled(transformers.ModernBertForMaskedLM(config))


def t5(**changes: Any) -> Any:
    """Returns T5 1.0: a tied head that is scaled down. Heads are wider together than the model."""
    import transformers

    config = transformers.T5Config(**(_T5 | changes))
    return filled(transformers.T5ForConditionalGeneration(config))


def t5_v1_1(**changes: Any) -> Any:
    """Returns T5 1.1: a gate, and a head of its own that is not scaled."""
    import transformers

    given = _T5 | dict(feed_forward_proj="gated-gelu", tie_word_embeddings=False)
    config = transformers.T5Config(**(given | changes))
    return filled(apart(transformers.T5ForConditionalGeneration(config)))


def mt5(**changes: Any) -> Any:
    """Returns mT5: as T5 1.1."""
    import transformers

    config = transformers.MT5Config(**(_T5 | dict(feed_forward_proj="gated-gelu") | changes))
    return filled(apart(transformers.MT5ForConditionalGeneration(config)))


def marian(**changes: Any) -> Any:
    """Returns Marian: one table, scaled embeddings, a bias of the logits."""
    import transformers

    given = dict(activation_function="swish", scale_embedding=True)
    config = transformers.MarianConfig(**(_BART | given | changes))
    return filled(transformers.MarianMTModel(config))


def bart(**changes: Any) -> Any:
    """Returns BART: learned positions that are counted from 2, and a norm of the embeddings."""
    import transformers

    config = transformers.BartConfig(**(_BART | dict(activation_function="gelu") | changes))
    return filled(transformers.BartForConditionalGeneration(config))


def apart(model: Any) -> Any:
    """Gives a T5 a head of its own, as published files have; the library only makes tied ones."""
    import torch

    model.lm_head.weight = torch.nn.Parameter(torch.zeros_like(model.shared.weight))
    model.all_tied_weights_keys.pop("lm_head.weight", None)
    return model


def filled(model: Any, *, seed: int = 7) -> Any:
    """Draws every parameter of a model, and the bias of its logits, and ends its training mode."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    draw = functools.partial(torch.randn, generator=generator)
    named = list(model.named_parameters())
    named += [pair for pair in model.named_buffers() if pair[0] == "final_logits_bias"]
    with torch.no_grad():
        for name, value in named:
            if "embed_positions" in name and not value.requires_grad:
                continue
            drawn = draw(value.shape)
            is_norm = value.ndim == 1 and name.endswith("weight")
            is_table = "embed" in name or "shared" in name or "relative" in name
            if is_norm:
                drawn = 1 + 0.3 * drawn
            elif value.ndim == 1 or name == "final_logits_bias":
                drawn = 0.3 * drawn
            elif not is_table:
                drawn = drawn / math.sqrt(value.shape[-1])
            value.copy_(drawn)
    return model.eval()


def with_exact_sinusoids(model: Any) -> Any:
    """Gives a Marian in float64 the positions that it holds rounded to float32."""
    import torch

    with torch.no_grad():
        for stack in (model.model.encoder, model.model.decoder):
            rows, width = stack.embed_positions.weight.shape
            planes = np.arange(width // 2)
            angle = np.arange(rows)[:, None] / 10_000.0 ** (2 * planes / width)
            table = np.concatenate([np.sin(angle), np.cos(angle)], axis=1)
            stack.embed_positions.weight.copy_(torch.from_numpy(table))
    return model


_SPECIAL = dict(pad_token_id=0, bos_token_id=1, eos_token_id=3, cls_token_id=1, sep_token_id=3)
_BERT = dict(
    vocab_size=53,
    hidden_size=24,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=44,
    max_position_embeddings=37,
    pad_token_id=0,
)
_T5 = dict(
    vocab_size=53,
    d_model=20,
    d_kv=6,
    d_ff=44,
    num_layers=2,
    num_decoder_layers=3,
    num_heads=5,
    relative_attention_num_buckets=8,
    relative_attention_max_distance=15,
    pad_token_id=0,
    eos_token_id=1,
    decoder_start_token_id=0,
)
_BART = dict(
    vocab_size=53,
    d_model=24,
    encoder_layers=2,
    decoder_layers=3,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=44,
    decoder_ffn_dim=44,
    max_position_embeddings=37,
    pad_token_id=1,
    bos_token_id=0,
    eos_token_id=3,
    forced_eos_token_id=None,
    decoder_start_token_id=START,
)
