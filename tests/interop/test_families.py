"""Every family against the reference implementation, through one table of references."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers
from interop import references, rows_core, rows_decoders, rows_encoders
from interop.references import Row

from jtransformer import functional as F
from jtransformer.generation import Generator
from jtransformer.interop import FAMILIES, Loaded, family_named, load, save
from jtransformer.interop.mapping import flat, rules_of, shapes_of
from jtransformer.modules import build

ROWS = (*rows_core.ROWS, *rows_decoders.ROWS, *rows_encoders.ROWS)
NEW_TOKENS = 20
SINGLE, DOUBLE = 1e-4, 1e-9
"""Greatest difference of logits, relative to the greatest logit."""


class Pair(NamedTuple):
    """A reference, and the same model read from what it has saved."""

    row: Row
    model: Any
    loaded: Loaded
    directory: Any


@pytest.fixture(scope="module", params=ROWS, ids=lambda row: row.name)
def pair(request, tmp_path_factory):
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    row, directory = request.param, tmp_path_factory.mktemp("reference")
    model = references.reference(row)
    model.save_pretrained(directory)
    return Pair(row, model, load(directory), directory)


@functools.partial(jax.jit, static_argnums=0)
def logits_of(spec, variables, tokens, given):
    found = build(spec).apply(variables, tokens, **given)
    return found.hidden if found.logits is None else found.logits


def compared(row: Row, model: Any, loaded: Loaded, side: str) -> float:
    """Returns the greatest difference of logits at real tokens, relative to the greatest logit."""
    given = references.batch(row, side)
    with torch.no_grad():
        found = model(**references.theirs(row, model, given, side))
    theirs = (found.logits if row.has_head else found.last_hidden_state).numpy()
    own = np.asarray(
        logits_of(loaded.spec, loaded.variables, given.tokens, references.ours(row, given))
    )
    assert own.dtype == theirs.dtype
    return float(np.abs(own - theirs)[given.valid].max() / np.abs(theirs[given.valid]).max())


def sides(row: Row) -> tuple[str, ...]:
    return ("right",) if row.left == "never" else ("right", "left")


def test_every_family_has_a_row():
    assert {row.family for row in ROWS} == {family.name for family in FAMILIES}


def test_the_family_is_the_expected_one(pair):
    assert pair.loaded.family == pair.row.family


def test_no_reference_matrix_is_square(pair):
    """A square one could be transposed unseen by its shape."""
    shapes = {name: tuple(p.shape) for name, p in pair.model.named_parameters() if p.dim() == 2}
    square = {name for name, shape in shapes.items() if shape[0] == shape[1]}
    assert not {name for name in square if not any(part in name for part in pair.row.square)}


def test_logits_are_those_of_the_reference(pair):
    for side in sides(pair.row):
        assert compared(pair.row, pair.model, pair.loaded, side) < SINGLE, side


def test_logits_in_double_precision(pair, tmp_path):
    row = pair.row
    if not row.is_double:
        return
    with references.in_double(), jax.enable_x64(True):
        model = references.reference(row, torch.float64)
        model.save_pretrained(tmp_path)
        loaded = load(tmp_path, dtype="float64")
        for side in sides(row):
            assert compared(row, model, loaded, side) < DOUBLE, side


def test_greedy_tokens_are_those_of_the_reference(pair):
    row, model, loaded = pair.row, pair.model, pair.loaded
    if not row.generates:
        return
    # Left padding is what the reference's own generation is defined for; of a source it is not.
    side = "right" if row.kind == "encoder_decoder" else "left"
    given = references.batch(row, "none" if row.left == "never" else side, 6)
    options = dict(max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=references.PAD)
    generator = Generator(model=loaded.spec, limit=NEW_TOKENS)
    if row.kind == "encoder_decoder":
        start = np.full((2, 1), row.config["decoder_start_token_id"], np.int32)
        theirs = model.generate(
            input_ids=torch.from_numpy(given.source).long(),
            attention_mask=torch.from_numpy(given.source_valid).long(),
            **options,
        ).numpy()[:, 1:]
        own = generator(
            loaded.variables, start, source=given.source, source_valid=given.source_valid
        )
    else:
        theirs = model.generate(
            input_ids=torch.from_numpy(given.tokens).long(),
            attention_mask=torch.from_numpy(given.valid).long(),
            **options,
        ).numpy()[:, given.tokens.shape[1] :]
        own = generator(loaded.variables, given.tokens, valid=given.valid)
    np.testing.assert_array_equal(np.asarray(own.tokens), theirs)


def mean_loss(row: Row, logits: Any, given: references.Batch) -> Any:
    """Computes the mean loss of the labels, which a decoder alone has one place on."""
    labels, weights = jnp.asarray(given.tokens), jnp.asarray(given.valid, jnp.float32)
    if row.kind == "decoder":
        logits, labels, weights = logits[:, :-1], labels[:, 1:], weights[:, 1:]
    found = F.cross_entropy(logits, labels, weights)
    return found.loss_sum / found.weight_sum


def their_loss(row: Row, model: Any, given: references.Batch) -> Any:
    labels = torch.from_numpy(np.where(given.valid, given.tokens, -100)).long()
    arguments = references.theirs(row, model, given, "right")
    # From labels alone the reference makes what its decoder reads.
    arguments = {name: x for name, x in arguments.items() if not name.startswith("decoder_")}
    return model(**arguments, labels=labels).loss


def test_loss_is_that_of_the_reference(pair):
    row, model, (spec, variables, *_) = pair.row, pair.model, pair.loaded
    if not row.has_head:
        return
    given = references.batch(row, "right")
    read = references.read_for_labels(row, given)
    logits = logits_of(spec, variables, read, references.ours(row, given))
    own = float(mean_loss(row, logits, given))
    with torch.no_grad():
        theirs = float(their_loss(row, model, given))
    assert own == pytest.approx(theirs, rel=1e-5)


def test_gradients_are_those_of_the_reference(pair):
    row, model, (spec, variables, name, *_) = pair.row, pair.model, pair.loaded
    if not row.has_gradients:
        return
    given = references.batch(row, "right")

    def loss(variables):
        read = references.read_for_labels(row, given)
        logits = logits_of(spec, variables, read, references.ours(row, given))
        return mean_loss(row, logits, given)

    own = flat(jax.grad(loss)(variables)["params"])
    model.zero_grad()
    their_loss(row, model, given).backward()
    theirs = {name: p.grad.numpy() for name, p in model.named_parameters()}
    shapes = shapes_of(spec)
    for rule in rules_of(family_named(name), spec, shapes):
        whole = theirs.pop(rule.theirs)
        # Of one tensor of theirs: a bias of keys alone moves all scores alike, and has none.
        scale = np.abs(whole).max()
        assert scale > 0, rule.theirs
        parts = rule.layout.read(whole, [shapes[path] for path in rule.ours])
        for path, part in zip(rule.ours, parts, strict=True):
            np.testing.assert_allclose(own[path], part, atol=1e-4 * scale, err_msg=path)
    assert not theirs


def test_import_export_import_keeps_every_bit(pair, tmp_path):
    first = load(pair.directory, dtype="stored")
    save(tmp_path, first.spec, first.variables, family=first.family, config=first.config)
    second = load(tmp_path, dtype="stored")
    assert second.spec == first.spec
    ours, again = flat(first.variables), flat(second.variables)
    assert ours.keys() == again.keys()
    for path, leaf in ours.items():
        np.testing.assert_array_equal(np.asarray(leaf), np.asarray(again[path]), err_msg=path)


def test_transformers_loads_what_is_exported(pair, tmp_path):
    row, model, loaded = pair.row, pair.model, pair.loaded
    save(tmp_path, loaded.spec, loaded.variables, family=loaded.family, config=loaded.config)
    again, about = type(model).from_pretrained(
        tmp_path, output_loading_info=True, attn_implementation="eager"
    )
    assert not any(about[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    given = references.batch(row, "right")
    arguments = references.theirs(row, model, given, "right")
    with torch.no_grad():
        own, theirs = again.eval()(**arguments), model(**arguments)
    np.testing.assert_array_equal(own[0].numpy(), theirs[0].numpy())
