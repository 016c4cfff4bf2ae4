"""References of Gemma, GPT-NeoX, GPT-J, Phi, OPT, BLOOM, Falcon and OLMo 2."""

from interop.references import Row

GEMMA = dict(
    vocab_size=53,
    hidden_size=20,
    intermediate_size=44,
    num_hidden_layers=3,
    num_attention_heads=6,
    num_key_value_heads=2,
    head_dim=8,
    rms_norm_eps=1e-4,
)
ALTERNATING = ["sliding_attention", "full_attention", "sliding_attention"]
LAST_ALONE = ["full_attention", "full_attention", "sliding_attention"]
NEOX = dict(
    vocab_size=53,
    hidden_size=30,
    intermediate_size=44,
    num_hidden_layers=2,
    num_attention_heads=3,
    layer_norm_eps=1e-4,
)
GPTJ = dict(
    vocab_size=53,
    n_embd=30,
    n_inner=44,
    n_layer=2,
    n_head=3,
    rotary_dim=6,
    n_positions=40,
    layer_norm_epsilon=1e-4,
)
PHI = NEOX | dict(num_attention_heads=5, hidden_size=40, intermediate_size=28)
OPT = dict(
    vocab_size=53,
    hidden_size=20,
    ffn_dim=44,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=40,
    pad_token_id=1,
)
FALCON = dict(
    vocab_size=53,
    hidden_size=48,
    ffn_hidden_size=28,
    num_hidden_layers=2,
    num_attention_heads=6,
    layer_norm_epsilon=1e-4,
)
OLMO2 = dict(
    vocab_size=53,
    hidden_size=24,
    intermediate_size=44,
    num_hidden_layers=2,
    num_attention_heads=6,
    num_key_value_heads=2,
    rms_norm_eps=1e-4,
)

ROWS: tuple[Row, ...] = (
    Row(
        name="gemma",
        family="gemma",
        model="GemmaForCausalLM",
        config=GEMMA | dict(rope_parameters=dict(rope_type="default", rope_theta=500.0)),
    ),
    Row(
        name="gemma-one-key-head-biased-untied",
        family="gemma",
        model="GemmaForCausalLM",
        config=GEMMA
        | dict(
            num_key_value_heads=1, attention_bias=True, tie_word_embeddings=False, hidden_act="silu"
        ),
    ),
    Row(
        name="gemma2",
        family="gemma2",
        model="Gemma2ForCausalLM",
        config=GEMMA
        | dict(
            hidden_size=18,
            query_pre_attn_scalar=11,
            sliding_window=4,
            # As the class would fill them in, so that the row says it.
            layer_types=ALTERNATING,
            attn_logit_softcapping=3.0,
            final_logit_softcapping=5.0,
        ),
    ),
    Row(
        name="gemma2-uncapped-untied",
        family="gemma2",
        model="Gemma2ForCausalLM",
        config=GEMMA
        | dict(
            hidden_size=18,
            query_pre_attn_scalar=8,
            sliding_window=5,
            layer_types=LAST_ALONE,
            attn_logit_softcapping=None,
            final_logit_softcapping=None,
            tie_word_embeddings=False,
        ),
    ),
    Row(
        name="gpt_neox",
        family="gpt_neox",
        model="GPTNeoXForCausalLM",
        config=NEOX,
        square=("attention.dense",),
    ),
    Row(
        name="gpt_neox-sequential-unbiased-tied",
        family="gpt_neox",
        model="GPTNeoXForCausalLM",
        config=NEOX
        | dict(
            use_parallel_residual=False,
            attention_bias=False,
            tie_word_embeddings=True,
            hidden_act="gelu_new",
            rope_parameters=dict(rope_type="default", rope_theta=500.0, partial_rotary_factor=1.0),
        ),
        square=("attention.dense",),
    ),
    Row(
        name="gptj",
        family="gptj",
        model="GPTJForCausalLM",
        config=GPTJ,
        square=("_proj",),
    ),
    Row(
        name="gptj-tied",
        family="gptj",
        model="GPTJForCausalLM",
        config=GPTJ | dict(rotary_dim=10, tie_word_embeddings=True, activation_function="relu"),
        square=("_proj",),
    ),
    Row(
        name="phi",
        family="phi",
        model="PhiForCausalLM",
        config=PHI,
        square=("_proj", "attn.dense"),
    ),
    Row(
        name="phi-grouped-wide-tied",
        family="phi",
        model="PhiForCausalLM",
        config=PHI
        | dict(
            num_attention_heads=6,
            num_key_value_heads=2,
            head_dim=12,
            tie_word_embeddings=True,
            rope_parameters=dict(
                rope_type="linear", factor=2.5, rope_theta=500.0, partial_rotary_factor=0.4
            ),
        ),
    ),
    Row(
        name="opt",
        family="opt",
        model="OPTForCausalLM",
        config=OPT,
        left="counted",
        square=("_proj",),
    ),
    Row(
        name="opt-post-norm",
        family="opt",
        model="OPTForCausalLM",
        config=OPT | dict(do_layer_norm_before=False, activation_function="gelu"),
        left="counted",
        square=("_proj",),
    ),
    Row(
        name="opt-unbiased-untied-without-last-norm",
        family="opt",
        model="OPTForCausalLM",
        config=OPT
        | dict(enable_bias=False, _remove_final_layer_norm=True, tie_word_embeddings=False),
        left="counted",
        square=("_proj",),
    ),
    Row(
        name="bloom",
        family="bloom",
        model="BloomForCausalLM",
        # Of 6 heads the last 2 have slopes of another ladder.
        config=dict(vocab_size=53, hidden_size=24, n_layer=2, n_head=6, layer_norm_epsilon=1e-4),
        left="counted",
        square=("attention.dense",),
    ),
    Row(
        name="bloom-untied",
        family="bloom",
        model="BloomForCausalLM",
        config=dict(vocab_size=53, hidden_size=20, n_layer=3, n_head=4, tie_word_embeddings=False),
        left="counted",
        square=("attention.dense",),
    ),
    Row(
        name="falcon-7b",
        family="falcon",
        model="FalconForCausalLM",
        config=FALCON,
        square=("attention.dense",),
    ),
    Row(
        name="falcon-40b",
        family="falcon",
        model="FalconForCausalLM",
        config=FALCON
        | dict(
            new_decoder_architecture=True,
            num_kv_heads=2,
            rope_parameters=dict(rope_type="default", rope_theta=500.0),
        ),
        square=("attention.dense",),
    ),
    Row(
        name="falcon-11b",
        family="falcon",
        model="FalconForCausalLM",
        config=FALCON
        | dict(
            new_decoder_architecture=True,
            num_kv_heads=3,
            num_ln_in_parallel_attn=1,
            tie_word_embeddings=False,
        ),
        square=("attention.dense",),
    ),
    Row(
        name="falcon-sequential-biased",
        family="falcon",
        model="FalconForCausalLM",
        config=FALCON
        | dict(parallel_attn=False, multi_query=False, bias=True, activation="gelu_new"),
        square=("attention.dense",),
    ),
    Row(
        name="olmo2",
        family="olmo2",
        model="Olmo2ForCausalLM",
        config=OLMO2 | dict(rope_parameters=dict(rope_type="default", rope_theta=500.0)),
        square=("q_proj", "o_proj"),
    ),
    Row(
        name="olmo2-wide-biased-tied",
        family="olmo2",
        model="Olmo2ForCausalLM",
        config=OLMO2 | dict(head_dim=6, attention_bias=True, tie_word_embeddings=True),
    ),
)
