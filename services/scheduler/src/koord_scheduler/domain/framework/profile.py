"""Which plugins a scheduler uses, in which order, with which weights; its digest is the policy version of decisions."""

from dataclasses import dataclass
from hashlib import blake2b

from koordcore.values import codec

from koord_scheduler.domain.framework.cross_node_points import CrossNodeFilterPlugin, CrossNodeScorePlugin
from koord_scheduler.domain.framework.cycle_points import (
    AfterPostFilterPlugin,
    FindOneNodePlugin,
    NextPodPlugin,
    PermitPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    ReservePlugin,
)
from koord_scheduler.domain.framework.fact_points import FoldingPlugin
from koord_scheduler.domain.framework.job_preempting import JobPreempting
from koord_scheduler.domain.framework.lifecycle_hooks import (
    AfterFailurePlugin,
    BeforeFailurePlugin,
    ControllerPlugin,
    PagesPlugin,
    PreBindPlugin,
)
from koord_scheduler.domain.framework.node_points import FilterPlugin, ScorePlugin
from koord_scheduler.domain.framework.post_filter import PreemptionPlugin
from koord_scheduler.domain.framework.transforming import (
    AfterPreFilterPlugin,
    BeforeFilterPlugin,
    BeforePreFilterPlugin,
    BeforeScorePlugin,
    PodTransformer,
    ResizePodPlugin,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The plugins of one scheduler name.

    filters          in the order in which they refuse: those that read only the shape of nodes first
    scores           with their weights
    coupled_filters  after all filters: they depend on pods elsewhere
    coupled_scores   with their weights
    settings         everything that distinguishes this profile from another, as JSON values
    scheduler_name   pods of this scheduler name are scheduled by it
    next_pod         picks the next pod past the queue; None: nobody does
    transformers     change pods before anybody looks at them
    before_pre_filters, before_filters, before_scores   change what one cycle sees
    resizers         change what a pod asks for once its node is chosen
    find_one_node    plans whole jobs; None: nobody does
    preemptions      what is tried for a pod that no node suits, in order
    pre_binds        write on pods that are bound
    before_failures, after_failures   hear of failed attempts
    controllers      do something from time to time
    pages            answer over HTTP
    folding          plugins with a state of their own
    percentage_of_nodes_to_score   0: all nodes are examined, unless random relaxation is on (`sampled`)
    """

    filters: tuple[FilterPlugin, ...]
    scores: tuple[tuple[ScorePlugin, int], ...]
    coupled_filters: tuple[CrossNodeFilterPlugin, ...] = ()
    coupled_scores: tuple[tuple[CrossNodeScorePlugin, int], ...] = ()
    settings: object
    scheduler_name: str = "koord-scheduler"
    pre_enqueues: tuple[PreEnqueuePlugin, ...] = ()
    next_pod: NextPodPlugin | None = None
    transformers: tuple[PodTransformer, ...] = ()
    before_pre_filters: tuple[BeforePreFilterPlugin, ...] = ()
    pre_filters: tuple[PreFilterPlugin, ...] = ()
    after_pre_filters: tuple[AfterPreFilterPlugin, ...] = ()
    before_filters: tuple[BeforeFilterPlugin, ...] = ()
    before_scores: tuple[BeforeScorePlugin, ...] = ()
    resizers: tuple[ResizePodPlugin, ...] = ()
    find_one_node: FindOneNodePlugin | None = None
    reserves: tuple[ReservePlugin, ...] = ()
    permits: tuple[PermitPlugin, ...] = ()
    after_post_filters: tuple[AfterPostFilterPlugin, ...] = ()
    preemptions: tuple[PreemptionPlugin | JobPreempting, ...] = ()
    pre_binds: tuple[PreBindPlugin, ...] = ()
    before_failures: tuple[BeforeFailurePlugin, ...] = ()
    after_failures: tuple[AfterFailurePlugin, ...] = ()
    controllers: tuple[ControllerPlugin, ...] = ()
    pages: tuple[PagesPlugin, ...] = ()
    folding: tuple[FoldingPlugin, ...] = ()
    percentage_of_nodes_to_score: int = 0

    @property
    def sees_otherwise(self) -> bool:
        """Whether a cycle may find room where looking at pods and nodes as they are finds none."""
        return bool(self.before_pre_filters or self.before_filters)

    def policy_version(self, *, random_relaxation: bool = False) -> str:
        """Digest of the effective configuration, 16 hex digits."""
        description: dict[str, object] = {
            "filters": [plugin.name for plugin in (*self.filters, *self.coupled_filters)],
            "scores": [[plugin.name, weight] for plugin, weight in (*self.scores, *self.coupled_scores)],
            "settings": self.settings,
        }
        if random_relaxation:
            description["randomRelaxation"] = True
        return blake2b(codec.encode_canonical(description), digest_size=8).hexdigest()
