"""Texts, examples, splits and batches; batch t depends on (data spec, seed, t) alone."""

from jtransformer.data.batch import Batch
from jtransformer.data.batches import TrainingBatches, check_batch, evaluation_batches
from jtransformer.data.blank import blank_batch
from jtransformer.data.corpus import Corpus, Examples, Report, Stream
from jtransformer.data.loading import load
from jtransformer.data.metrics import ErrorRates, Score, bleu, chrf, error_rates, exact_match
from jtransformer.data.prefetch import prefetch
from jtransformer.data.shares import Share
from jtransformer.data.specials import Specials, specials
from jtransformer.data.tokenizers import Tokenizer, load_tokenizer, save_tokenizer
from jtransformer.data.yardsticks import Yardsticks, yardsticks

__all__ = [
    "Batch",
    "Corpus",
    "ErrorRates",
    "Examples",
    "Report",
    "Score",
    "Share",
    "Specials",
    "Stream",
    "Tokenizer",
    "TrainingBatches",
    "Yardsticks",
    "blank_batch",
    "bleu",
    "check_batch",
    "chrf",
    "error_rates",
    "evaluation_batches",
    "exact_match",
    "load",
    "load_tokenizer",
    "prefetch",
    "save_tokenizer",
    "specials",
    "yardsticks",
]
