"""Whether the tables of a model with an encoder hold the ids of its corpus, and may be shared."""

from jtransformer.data.corpus import Corpus
from jtransformer.spec import EncoderDecoder, RunSpec, SpecError


def check_vocabularies(corpus: Corpus, spec: RunSpec) -> None:
    """Refuses a model that cannot hold the ids of the source, or shares one table for two sets.

    Equal sizes do not make two vocabularies one: rows of a shared table would mean two things.

    Raises:
        SpecError: If the model lacks ids, or shares its embeddings among different tokenizers.
    """
    stack = spec.model.stack
    if not isinstance(stack, EncoderDecoder):
        return
    needed, found = corpus.specials.size, spec.model.source_vocabulary
    if found is not None and found < needed:
        raise SpecError(
            "model.stack.encoder_decoder.source_vocabulary",
            f"must be at least {needed}, the ids that a source may hold, got {found}; "
            f"use {needed}.",
        )
    target, source = corpus.tokenizer.sha256, corpus.source_tokenizer.sha256
    if stack.share_embedding and source != target:
        raise SpecError(
            "model.stack.encoder_decoder.share_embedding",
            "= True needs one tokenizer for source and target, got the hashes "
            f"{source[:8]} and {target[:8]}; use False.",
        )
