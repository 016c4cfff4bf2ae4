"""References of GPT-2, Llama, Mistral, Qwen2 and Qwen3."""

from interop.references import Row

LLAMA = dict(
    vocab_size=53,
    hidden_size=24,
    intermediate_size=44,
    num_hidden_layers=2,
    num_attention_heads=6,
    num_key_value_heads=2,
    head_dim=8,
    max_position_embeddings=32,
    rms_norm_eps=1e-5,
)
LLAMA3 = dict(
    rope_type="llama3",
    rope_theta=700.0,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=16,
)
QWEN2 = dict(
    vocab_size=53,
    hidden_size=30,
    intermediate_size=44,
    num_attention_heads=6,
    num_key_value_heads=2,
    rms_norm_eps=1e-5,
    # A head has hidden_size / heads channels, of which there must be an even number.
    head_dim=4,
)

ROWS: tuple[Row, ...] = (
    Row(
        name="gpt2",
        family="gpt2",
        model="GPT2LMHeadModel",
        config=dict(
            vocab_size=53,
            n_embd=20,
            n_layer=2,
            n_head=4,
            n_inner=28,
            n_positions=40,
            layer_norm_epsilon=1e-4,
        ),
        has_gradients=True,
        square=("attn.c_proj",),
    ),
    Row(
        name="llama",
        family="llama",
        model="LlamaForCausalLM",
        config=LLAMA | dict(rope_parameters=dict(rope_type="default", rope_theta=500.0)),
        has_gradients=True,
    ),
    Row(
        name="llama3-biased-tied",
        family="llama",
        model="LlamaForCausalLM",
        config=LLAMA
        | dict(
            rope_parameters=LLAMA3, attention_bias=True, mlp_bias=True, tie_word_embeddings=True
        ),
    ),
    Row(
        name="llama-linear",
        family="llama",
        model="LlamaForCausalLM",
        config=LLAMA | dict(rope_parameters=dict(rope_type="linear", factor=3.0)),
    ),
    Row(
        name="llama-yarn",
        family="llama",
        model="LlamaForCausalLM",
        config=LLAMA
        | dict(
            rope_parameters=dict(
                rope_type="yarn",
                rope_theta=700.0,
                factor=4.0,
                original_max_position_embeddings=64,
            )
        ),
    ),
    Row(
        name="mistral",
        family="mistral",
        model="MistralForCausalLM",
        config=LLAMA | dict(sliding_window=5),
    ),
    Row(
        name="qwen2",
        family="qwen2",
        model="Qwen2ForCausalLM",
        config=QWEN2 | dict(num_hidden_layers=3),
    ),
    Row(
        name="qwen2-window",
        family="qwen2",
        model="Qwen2ForCausalLM",
        config=QWEN2
        | dict(
            num_hidden_layers=3,
            use_sliding_window=True,
            sliding_window=4,
            max_window_layers=1,
            tie_word_embeddings=True,
        ),
    ),
    Row(
        name="qwen3",
        family="qwen3",
        model="Qwen3ForCausalLM",
        config=LLAMA | dict(attention_bias=True),
    ),
    Row(
        name="qwen3-window",
        family="qwen3",
        model="Qwen3ForCausalLM",
        config=LLAMA
        | dict(
            num_hidden_layers=3,
            use_sliding_window=True,
            sliding_window=4,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        ),
    ),
)
