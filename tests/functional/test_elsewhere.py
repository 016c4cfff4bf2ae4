"""The functions inside other JAX code: a plain loop, Equinox, NNX, transformations and exports."""

import os
import pathlib
import subprocess
import sys

import equinox
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_block
from flax import nnx
from quickly import quickly

TESTS = pathlib.Path(__file__).parents[1]
ROWS = tiny_block.token_rows()


@pytest.fixture(scope="module")
def expected():
    """Loss and gradients of the loop over the layers."""
    return quickly(jax.value_and_grad(tiny_block.mean_loss))(tiny_block.parameters(), ROWS)


def assert_same(found, expected):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6), found, expected)


def test_a_plain_loop_learns_to_count():
    @quickly
    def step(p):
        loss, slope = jax.value_and_grad(tiny_block.mean_loss)(p, ROWS)
        return jax.tree.map(lambda value, by: value - 0.5 * by, p, slope), loss

    p = tiny_block.parameters()
    history = []
    for _ in range(60):
        p, loss = step(p)
        history.append(float(loss))
    assert history[0] > 2
    assert history[-1] < 0.2


def test_a_scan_over_layers_equals_the_loop(expected):
    def scanned(p, rows):
        def through_all(stack, x):
            return jax.lax.scan(lambda x, one: (tiny_block.layer(one, x), None), x, stack)[0]

        return tiny_block.mean_loss({**p, "layers": (p["layers"],)}, rows, through_all)

    p = tiny_block.parameters()
    loss, slope = quickly(jax.value_and_grad(scanned))(
        {**p, "layers": tiny_block.stacked(p["layers"])}, ROWS
    )
    stacked = {**expected[1], "layers": tiny_block.stacked(expected[1]["layers"])}
    assert_same((loss, slope), (expected[0], stacked))


@pytest.mark.slow
@pytest.mark.parametrize(
    "policy", [None, jax.checkpoint_policies.dots_saveable], ids=["everything", "dots saved"]
)
def test_rematerialised_layers_equal_stored_ones(expected, policy):
    run_layer = jax.checkpoint(tiny_block.layer, policy=policy)
    function = jax.jit(jax.value_and_grad(lambda p: tiny_block.mean_loss(p, ROWS, run_layer)))
    assert_same(function(tiny_block.parameters()), expected)


def test_an_equinox_module_owns_the_parameters(expected):
    class Layer(equinox.Module):
        weights: dict

        def __call__(self, x):
            return tiny_block.layer(self.weights, x)

    class Decoder(equinox.Module):
        table: jax.Array
        layers: tuple

        def __call__(self, rows):
            p = {"table": self.table, "layers": self.layers}
            return tiny_block.mean_loss(p, rows, lambda layer, x: layer(x))

    p = tiny_block.parameters()
    decoder = Decoder(p["table"], tuple(Layer(one) for one in p["layers"]))
    loss, slope = equinox.filter_jit(equinox.filter_value_and_grad(lambda m: m(ROWS)))(decoder)
    found = {"table": slope.table, "layers": tuple(one.weights for one in slope.layers)}
    assert_same((loss, found), expected)


def test_an_nnx_module_owns_the_parameters(expected):
    class Layer(nnx.Module):
        def __init__(self, weights):
            self.weights = nnx.Dict({name: nnx.Param(w) for name, w in weights.items()})

        def __call__(self, x):
            return tiny_block.layer({name: w[...] for name, w in self.weights.items()}, x)

    class Decoder(nnx.Module):
        def __init__(self, p):
            self.table = nnx.Param(p["table"])
            self.layers = nnx.List([Layer(one) for one in p["layers"]])

        def __call__(self, rows):
            p = {"table": self.table[...], "layers": tuple(self.layers)}
            return tiny_block.mean_loss(p, rows, lambda layer, x: layer(x))

    decoder = Decoder(tiny_block.parameters())
    loss, slope = nnx.jit(nnx.value_and_grad(lambda m: m(ROWS)))(decoder)
    pure = nnx.to_pure_dict(slope)
    layers = tuple(pure["layers"][i]["weights"] for i in range(tiny_block.LAYERS))
    assert_same((loss, {"table": pure["table"], "layers": layers}), expected)


@pytest.mark.slow
def test_gradients_of_single_examples_average_to_that_of_the_batch(expected):
    each = jax.jit(jax.vmap(jax.grad(tiny_block.mean_loss), (None, 0)))
    slopes = each(tiny_block.parameters(), ROWS[:, None])
    assert_same(jax.tree.map(lambda slope: slope.mean(0), slopes), expected[1])


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_forward_over_reverse_is_the_change_of_the_gradient():
    """As second-order optimizers need it."""
    p = jax.tree.map(lambda x: x.astype(jnp.float64), tiny_block.parameters())
    step = 1e-5

    @jax.jit
    def slope(factor):
        scaled = jax.tree.map(lambda x: x * factor, p)
        return jax.grad(tiny_block.mean_loss)(scaled, ROWS)

    ahead, behind = slope(jnp.float64(1 + step)), slope(jnp.float64(1 - step))
    one = jnp.float64(1.0)
    _, curved = jax.jvp(slope, (one,), (one,))
    differences = jax.tree.map(lambda a, b: (a - b) / (2 * step), ahead, behind)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), curved, differences)


@pytest.mark.parametrize("platform", ["cpu", "cuda", "tpu"])
def test_a_training_step_exports_for_every_platform(expected, platform):
    step = jax.jit(jax.value_and_grad(tiny_block.mean_loss))
    p = tiny_block.parameters()
    exported = jax.export.export(step, platforms=[platform])(p, ROWS)
    restored = jax.export.deserialize(exported.serialize())
    assert restored.platforms == (platform,)
    if platform == "cpu":
        assert_same(restored.call(p, ROWS), expected)


def test_eight_devices_give_the_loss_and_the_gradients_of_one():
    """Batch and heads spread by shard_map: see `sharded_program.py`."""
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)]),
    }
    program = TESTS / "functional" / "sharded_program.py"
    command = [sys.executable, "-W", "error", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr


def test_a_mixed_precision_step_keeps_float32_masters(expected):
    """The layers run in the dtype they are given; the gradient arrives in that of the masters."""

    def loss(p):
        low = jax.tree.map(lambda x: x.astype(jnp.bfloat16), p)
        sums = tiny_block.losses(low, ROWS)
        assert sums.loss_sum.dtype == jnp.float32
        return sums.loss_sum / sums.weight_sum

    p = tiny_block.parameters()
    value, slope = quickly(jax.value_and_grad(loss))(p)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(slope))
    np.testing.assert_allclose(value, expected[0], rtol=0.02)
