"""A GPT-2 in flax.linen with optax, as its examples are written."""

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax.training import train_state

from ..sizes import BETA1, BETA2, EPSILON, GRADIENT_CLIP, LEARNING_RATE, WEIGHT_DECAY, Size, rows
from .in_jax import count, peak_flops, threads
from .serving import Handlers, Training, trained


class Block(nn.Module):
    """Causal attention and a feed-forward network, each behind its norm."""

    size: Size

    @nn.compact
    def __call__(self, x, mask):
        size = self.size
        h = nn.LayerNorm(epsilon=1e-5)(x)
        x = x + nn.MultiHeadDotProductAttention(num_heads=size.N)(h, mask=mask)
        h = nn.LayerNorm(epsilon=1e-5)(x)
        h = nn.Dense(size.F)(h)
        h = nn.gelu(h)
        return x + nn.Dense(size.D)(h)


class GPT2(nn.Module):
    """Embeddings, blocks, and a head that is the embedding."""

    size: Size

    @nn.compact
    def __call__(self, tokens):
        size = self.size
        embed = nn.Embed(size.V, size.D, embedding_init=nn.initializers.normal(0.02))
        positions = self.param("positions", nn.initializers.normal(0.02), (size.T, size.D))
        x = embed(tokens) + positions[: tokens.shape[1]]
        mask = nn.make_causal_mask(tokens)
        for _ in range(size.L):
            x = Block(size)(x, mask)
        return embed.attend(nn.LayerNorm(epsilon=1e-5)(x))


def training(size: Size) -> Training:
    """Starts a run."""
    tokens, labels = map(jnp.asarray, rows(size))
    model = GPT2(size)
    optimizer = optax.chain(
        optax.clip_by_global_norm(GRADIENT_CLIP),
        optax.adamw(LEARNING_RATE, b1=BETA1, b2=BETA2, eps=EPSILON, weight_decay=WEIGHT_DECAY),
    )
    parameters = jax.jit(model.init)(jax.random.key(0), tokens)["params"]
    state = train_state.TrainState.create(apply_fn=model.apply, params=parameters, tx=optimizer)

    def update(state, tokens, labels):
        def loss_of(parameters):
            logits = state.apply_fn({"params": parameters}, tokens)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        loss, gradients = jax.value_and_grad(loss_of)(state.params)
        return state.apply_gradients(grads=gradients), loss

    compiled = jax.jit(update, donate_argnums=0)
    held = [state, jnp.zeros(())]

    def step() -> None:
        held[:] = compiled(held[0], tokens, labels)

    return Training(count(parameters), step, lambda: float(held[1]))


def serve() -> Handlers:
    """Returns what this process may be asked for."""
    return trained(training) | {"peak": peak_flops, "threads": threads}
