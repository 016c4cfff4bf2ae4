"""Probes: what a model is like inside, layer by layer; parameters and a batch in, numbers out."""

from jtransformer.probes.ablation import head_ablation
from jtransformer.probes.activity import Activity, activity
from jtransformer.probes.jacobians import SpectralNorms, spectral_norms
from jtransformer.probes.measure import Choice, Measured, measure
from jtransformer.probes.record import CAVEAT, to_record
from jtransformer.probes.sites import Sample, head_names
from jtransformer.probes.sizes import ByLayer, gradient_norms, update_ratios

__all__ = [
    "CAVEAT",
    "Activity",
    "ByLayer",
    "Choice",
    "Measured",
    "Sample",
    "SpectralNorms",
    "activity",
    "gradient_norms",
    "head_ablation",
    "head_names",
    "measure",
    "spectral_norms",
    "to_record",
    "update_ratios",
]
