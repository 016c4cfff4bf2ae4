"""What the statistics return: small frozen values, in the loss unit of the manifest."""

import dataclasses
from typing import Any, Literal

from jtransformer.records import EarlierRule, VerdictRule

Word = Literal[
    "baseline",
    "better",
    "worse",
    "equivalent within margin",
    "cannot tell",
    "diverges more often",
    "unfair comparison",
    "incomplete",
    "no interval",
    "not compared",
]
_EMBEDDED = ("embedding", "position", "head")
"""Components that are tables of tokens, positions and labels."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
    """A figure with its 95 % t interval; what cannot be estimated is None.

    `p` is the raw two-sided p of the figure being zero, for differences only.
    """

    value: float
    standard_error: float | None = None
    low: float | None = None
    high: float | None = None
    degrees_of_freedom: int | None = None
    p: float | None = None

    @property
    def half_width(self) -> float | None:
        """Half the length of the interval."""
        return None if self.high is None else self.high - self.value


@dataclasses.dataclass(frozen=True)
class EffectSize:
    """A difference in units of the noise, with its 95 % interval; not symmetric about `value`.

    Attributes:
        value: Difference / residual sd, without a small-sample correction.
        low: Lower end.
        high: Upper end.
    """

    value: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Edge:
    """A tuned value that is the lowest or highest of those tried: the optimum may lie beyond.

    `among` says whether they were a grid or draws.
    """

    factor: str
    side: Literal["lowest", "highest"]
    value: float
    among: Literal["grid", "draws"] = "grid"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RungCount:
    """A rung of a search by halving: how many settings of an arm had runs of how many steps."""

    number: int
    of: int
    steps: int
    settings: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """The word that the rule gives, and the sentence a reader sees."""

    word: Word
    text: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Count:
    """How a number of runs stand; `finished` includes those that diverged."""

    planned: int
    finished: int
    diverged: int
    failed: int

    @property
    def complete(self) -> bool:
        return self.finished == self.planned


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice:
    """An arm's chosen nuisance setting and its runs.

    `validation`, `test` and `train` hold the final figure of each finished, undiverged seed.
    """

    nuisance: dict[str, Any]
    edges: tuple[Edge, ...]
    runs: Count
    validation: dict[int, float]
    test: dict[int, float]
    train: dict[int, float]


@dataclasses.dataclass(frozen=True)
class SeedsNeeded:
    """How many seeds would find a difference with 80 % power.

    Attributes:
        seeds: How many; None if more than `MOST_SEEDS`.
        difference: The difference, without its sign.
        of: Whether it is the declared margin or the observed difference.
    """

    seeds: int | None
    difference: float
    of: Literal["margin", "observed difference"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """An arm against the baseline at their chosen settings; negative means a lower loss.

    `model` is the arm + seed model's difference and decides; `paired` is the plain paired t of
    `by_seed`, a check; `test` is the model's difference on the test split. `p_adjusted` adjusts
    `model.p` over all arms but the baseline, at every scale, by the correction of the rule, and
    `p_equivalent` so adjusts that of two one-sided tests, where a margin is declared.
    `simultaneous` is `model` with an interval of which those of the whole family hold at once.
    `effect_size` is in units of the residual sd. `bootstrap` and `p_sign_flip` are of `by_seed`,
    where it has seeds enough. `resolvable` is the smallest difference that would be found with
    80 % power at Holm's first step; `need` is how many seeds another one would take.
    """

    model: Estimate
    paired: Estimate | None
    by_seed: dict[int, float]
    test: Estimate | None
    p_adjusted: float | None
    resolvable: float | None
    simultaneous: Estimate
    effect_size: EffectSize | None
    bootstrap: tuple[float, float] | None
    p_sign_flip: float | None
    p_equivalent: float | None
    need: SeedsNeeded | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArmAnalysis:
    """All that is known of one arm.

    `residual` is the mismatch of the matched quantity to the baseline, a fraction; `mismatches`
    are those of every quantity, None where the baseline has nothing of it. `mean` and
    `test_mean` average the seeds at the choice and are None where a run of it diverged.
    `objections` are the reasons for which the comparison with the baseline is unfair.
    """

    name: str
    factors: dict[str, Any]
    matched: dict[str, Any]
    parameters: int
    components: dict[str, int]
    residual: float
    mismatches: dict[str, float | None]
    training_flops_per_token: int
    runs: Count
    settings: int
    choice: Choice | None
    mean: Estimate | None
    test_mean: Estimate | None
    comparison: Comparison | None
    objections: tuple[str, ...]
    verdict: Verdict

    @property
    def non_embedding_parameters(self) -> int:
        """Its parameters between embeddings and head."""
        return self.parameters - sum(self.components.get(name, 0) for name in _EMBEDDED)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelFit:
    """The arm + seed model that the differences come from.

    `arms` are the arms in it; `balanced` says that each has every seed. `residual_sd` is
    None without residual degrees of freedom. `comparisons` is the size of the family that p values
    are adjusted over.
    """

    arms: tuple[str, ...]
    observations: int
    degrees_of_freedom: int
    residual_sd: float | None
    balanced: bool
    comparisons: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Analysis:
    """A sweep's result: one value from which the table, the page and the verdict are written.

    `match` is what the manifest says of it: what is held equal and by what, None for nothing.
    Of a sweep at several scales there is one for each: `scale` is its name and `scales` are all of
    them, and the comparisons of all are one family. `search` says how tuned settings were
    found, `rungs` how long they were run (those of the baseline, with no rungs none), and `stages`
    what was decided on the way. `rule` is by which the words are chosen, `earlier_rules` are those
    that it has replaced when runs had finished.
    """

    title: str
    question: str
    command: str
    baseline: str
    seeds: tuple[int, ...]
    data: dict[str, Any]
    match: dict[str, Any] | None
    runs: Count
    arms: tuple[ArmAnalysis, ...]
    fit: ModelFit | None
    scale: str | None
    scales: dict[str, dict[str, Any]]
    search: dict[str, Any]
    stages: tuple[dict[str, Any], ...]
    rungs: tuple[RungCount, ...]
    rule: VerdictRule
    earlier_rules: tuple[EarlierRule, ...]

    @property
    def drawn(self) -> bool:
        """Whether tuned settings were drawn, so that no grid of them is full."""
        return self.search.get("trials") is not None

    def difference(self, arm: ArmAnalysis) -> Estimate | None:
        """Returns an arm's difference with the interval that the rule has shown."""
        if arm.comparison is None:
            return None
        plain = self.rule.intervals == "unadjusted"
        return arm.comparison.model if plain else arm.comparison.simultaneous

    def label(self, arm: ArmAnalysis) -> str:
        """Returns what an arm is called at every scale."""
        return arm.name if self.scale is None else arm.name.removeprefix(f"{self.scale}-")

    def arm(self, name: str) -> ArmAnalysis:
        """Returns the arm of that name.

        Raises:
            ValueError: If there is none; the message lists the names.
        """
        for arm in self.arms:
            if arm.name == name:
                return arm
        names = ", ".join(arm.name for arm in self.arms)
        raise ValueError(f"no arm is named {name!r}; the arms are {names}.")
