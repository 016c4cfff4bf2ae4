"""How much of what its chips can do at most a run does.

The operations of the model, those of `flops`, over the products of bfloat16 that the chips could do
meanwhile: the model FLOPs utilisation of Chowdhery et al. 2022, appendix B,
https://arxiv.org/abs/2204.02311. It is the figure that `jtransformer.ahead` predicts. A run in
float32 is measured against the same peak.
"""

from jtransformer.accounting.chips import chip_of
from jtransformer.accounting.flops import flops
from jtransformer.spec import RunSpec


def utilisation(
    run: RunSpec, tokens_per_second: float, *, device_kind: str, devices: int
) -> float | None:
    """Returns which part of its devices' peak a run reached; None where that is not known.

    Args:
        run: The run.
        tokens_per_second: Its speed, as in its records.
        device_kind: What JAX calls a device, `jax.Device.device_kind`.
        devices: How many take part.
    """
    found = chip_of(device_kind)
    if found is None:
        return None
    lengths = run.row_lengths
    figures = flops(run.model, length=lengths.length, source_length=lengths.source_length)
    return figures.training * tokens_per_second / (found.flops * devices)
