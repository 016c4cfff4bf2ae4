"""What every test runs under: strict promotion, checked shapes, a counted number of skips."""

import importlib.metadata
import os

# Before anything imports jax: the tests are written for the CPU unless the caller says otherwise.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Most time goes into compiling programs that run once. The emitters of XLA before its present ones
# take half as long; jaxlib 0.10 is the last to have both. Whoever sets XLA_FLAGS, be it to nothing,
# gets the usual ones: CI runs the slow tests so.
if importlib.metadata.version("jaxlib").startswith("0.10."):
    quick = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    os.environ.setdefault("XLA_FLAGS", quick)

import pathlib

import children
import jax
import jaxtyping
import pytest

# Before anything imports the checked packages, else their annotations are never looked at.
CHECKED = ("jtransformer.functional", "jtransformer.modules")
jaxtyping.install_import_hook(CHECKED, "beartype.beartype")

TESTS = pathlib.Path(__file__).parent

# optax.adamw mixes dtypes, so these folders alone run under JAX's standard dtype promotion.
STANDARD_PROMOTION = {"training", "cli", "ahead", "experiments"}

# A skip hides a law. Each has a reason, an owner and a date, and their number is bounded.
MAX_SKIPS = int(os.environ.get("MOST_SKIPS", "4"))


@pytest.fixture
def key() -> jax.Array:
    """A fixed key; split it or fold in a number where a test needs several."""
    return jax.random.key(0)


@pytest.fixture(autouse=True)
def no_child_is_left():
    """Ends the processes that a test has started, also where an assertion failed before it did."""
    yield
    children.end_all()


# Module scope, so that the fixtures a module shares among its tests run under the same rules.
@pytest.fixture(scope="module", autouse=True)
def promotion(request: pytest.FixtureRequest):
    """Refuses implicit dtype and rank promotion, which hide a swapped axis or a lost bfloat16."""
    folder = request.path.relative_to(TESTS).parts[0]
    dtype = "standard" if folder in STANDARD_PROMOTION else "strict"
    before = jax.config.jax_numpy_dtype_promotion, jax.config.jax_numpy_rank_promotion
    jax.config.update("jax_numpy_dtype_promotion", dtype)
    jax.config.update("jax_numpy_rank_promotion", "raise")
    yield
    jax.config.update("jax_numpy_dtype_promotion", before[0])
    jax.config.update("jax_numpy_rank_promotion", before[1])


def _number_of_skips(config: pytest.Config) -> int:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return len(reporter.stats.get("skipped", [])) if reporter else 0


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fails a run that skipped more than MAX_SKIPS tests."""
    if _number_of_skips(session.config) > MAX_SKIPS and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Prints the number of skips and its bound; -rs has printed the reasons."""
    skips = _number_of_skips(config)
    verdict = "too many" if skips > MAX_SKIPS else "allowed"
    terminalreporter.write_line(f"skips: {skips} of at most {MAX_SKIPS} ({verdict})")
