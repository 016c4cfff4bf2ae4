"""Every variant of attention: the keys and values that each of its outputs depends on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from catalogue import CATALOGUE
from catalogue.row import draw, on_device
from quickly import quickly

SEEING = {name: row for name, row in CATALOGUE.items() if row.sees_BTS is not None}


@pytest.mark.parametrize("row", SEEING.values(), ids=SEEING)
def test_an_output_depends_on_what_its_query_sees_and_on_nothing_else(row):
    q, *sources = on_device(draw(row))

    @quickly
    def slopes(*sources):
        """How much each output position moves with each key and value: shape B T, then S."""

        def positions(k, v):
            weighted = jnp.cos(jnp.arange(out.size, dtype=out.dtype)).reshape(out.shape)
            return (row.call(q, k, v, *sources[2:]) * weighted).sum((2, 3))

        out = row.call(q, *sources)
        by_k, by_v = jax.jacrev(positions, argnums=(0, 1))(*sources[:2])
        return [jnp.abs(by).sum((4, 5)) for by in (by_k, by_v)]

    for by in slopes(*sources):
        by_BTS = np.stack([np.asarray(by[b, :, b]) for b in range(by.shape[0])])
        # A softmax over one key does not depend on the key; its value is always felt.
        assert (by_BTS[~row.sees_BTS] == 0).all()
    assert (by_BTS[row.sees_BTS] != 0).all()
