"""References of families with an encoder: BERT and its kin, T5, Marian and BART."""

from interop.references import Row

BERT = dict(
    vocab_size=53,
    hidden_size=24,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=44,
    max_position_embeddings=37,
    type_vocab_size=3,
    pad_token_id=0,
    layer_norm_eps=1e-4,
)
ROBERTA = BERT | dict(type_vocab_size=1, pad_token_id=1, max_position_embeddings=15)
MODERNBERT = dict(
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
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=3,
    cls_token_id=1,
    sep_token_id=3,
)
T5 = dict(
    vocab_size=53,
    d_model=20,
    d_kv=6,
    d_ff=44,
    # Their cache has as many layers as the encoder, so that a deeper decoder cannot generate.
    num_layers=3,
    num_decoder_layers=2,
    num_heads=5,
    relative_attention_num_buckets=8,
    relative_attention_max_distance=11,
    layer_norm_epsilon=1e-4,
    pad_token_id=0,
    eos_token_id=1,
    decoder_start_token_id=0,
)
T5_V1_1 = T5 | dict(feed_forward_proj="gated-gelu", tie_word_embeddings=False)
BART = dict(
    vocab_size=53,
    d_model=24,
    encoder_layers=3,
    decoder_layers=2,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=44,
    decoder_ffn_dim=44,
    max_position_embeddings=37,
    pad_token_id=1,
    bos_token_id=0,
    eos_token_id=3,
    forced_eos_token_id=None,
    decoder_start_token_id=2,
)
MARIAN = BART | dict(activation_function="swish", scale_embedding=True)

BERT_SQUARE = ("attention.self", "attention.output", "transform.dense", "pooler", "lm_head.dense")
"""Queries, keys, values and all that maps states to states is [D, D] by construction."""
BART_SQUARE = ("q_proj", "k_proj", "v_proj", "out_proj")


def _encoder(name: str, model: str, config: dict, **about) -> Row:
    family = name.partition("-")[0]
    return Row(
        name=name,
        family=family,
        model=model,
        config=config,
        kind="encoder",
        generates=False,
        **about,
    )


def _pair(name: str, model: str, config: dict, **about) -> Row:
    family = name.partition("-")[0]
    return Row(
        name=name, family=family, model=model, config=config, kind="encoder_decoder", **about
    )


ROWS: tuple[Row, ...] = (
    _encoder("bert", "BertForMaskedLM", BERT, left="placed", square=BERT_SQUARE),
    _encoder("bert-pooled", "BertModel", BERT, has_head=False, square=BERT_SQUARE),
    # As long as its 15 rows allow: positions are 2 … 14.
    _encoder("roberta", "RobertaForMaskedLM", ROBERTA, left="counted", square=BERT_SQUARE),
    _encoder(
        "roberta-padded-by-3",
        "RobertaForMaskedLM",
        ROBERTA | dict(pad_token_id=3, max_position_embeddings=31, hidden_act="relu"),
        left="counted",
        square=BERT_SQUARE,
    ),
    _encoder(
        "modernbert",
        "ModernBertForMaskedLM",
        MODERNBERT,
        left="counted",
        square=("attn.Wo", "head.dense"),
    ),
    _encoder(
        "modernbert-biased",
        "ModernBertForMaskedLM",
        MODERNBERT
        | dict(
            layer_types=["sliding_attention", "full_attention"] * 2 + ["full_attention"],
            attention_bias=True,
            mlp_bias=True,
            norm_bias=True,
            classifier_bias=True,
            decoder_bias=False,
            hidden_activation="silu",
        ),
        left="counted",
        square=("attn.Wo", "head.dense"),
    ),
    _pair("t5", "T5ForConditionalGeneration", T5, left="counted", has_gradients=True),
    _pair(
        "t5-1.1", "T5ForConditionalGeneration", T5_V1_1, left="counted", own_head=True, length=17
    ),
    # A gate alone makes no version 1.1: with one table it is what Flan-T5's authors call 1.0.
    _pair(
        "t5-tied-unscaled",
        "T5ForConditionalGeneration",
        T5 | dict(scale_decoder_outputs=False, num_decoder_layers=None),
        left="counted",
    ),
    _pair(
        "mt5",
        "MT5ForConditionalGeneration",
        T5 | dict(feed_forward_proj="gated-gelu"),
        left="counted",
        own_head=True,
    ),
    _pair(
        "bart",
        "BartForConditionalGeneration",
        BART | dict(activation_function="gelu"),
        left="placed",
        square=BART_SQUARE,
    ),
    _pair("marian", "MarianMTModel", MARIAN, left="placed", square=BART_SQUARE),
    _pair(
        "marian-two-vocabularies",
        "MarianMTModel",
        MARIAN
        | dict(
            share_encoder_decoder_embeddings=False, decoder_vocab_size=47, scale_embedding=False
        ),
        left="placed",
        square=BART_SQUARE,
    ),
)
