"""Choose the policy of a flow, a command or the service: the named one, the champion, or the configured one."""

from dataclasses import dataclass, replace
from pathlib import Path

from flows.runtime.fetching import require_policy
from flows.runtime.servers import Say
from slmsearch.config import RunConfig
from slmsearch.environments.registry import all_baselines, environment_of
from slmsearch.environments.searcher.searcher_environment import SearcherEnvironment
from slmsearch.errors import ConfigError, IndexUnusableError, ModelError
from slmsearch.evaluate.confidence import Calibration, read_calibration
from slmsearch.evaluate.policies import TRAINED, UNTRAINED, PolicySpec, describe_policy, parse_policy
from slmsearch.evaluate.run import EVALUATION_VERSION
from slmsearch.judge.exact import RULES_VERSION
from slmsearch.keys import content_key
from slmsearch.retrieval.versions import is_complete
from slmsearch.sampling.llamacpp import require_llamacpp
from slmsearch.serving.api.playing import Promise, ServedPolicy
from slmsearch.training.export_gguf import FILES, policy_of_llamacpp
from tasks.promotion import Champion, find_champion
from tasks.tracking import CHAMPION

TORCH, LLAMACPP = "torch", "llamacpp"


def choose_policy(config: RunConfig, policy: str | None) -> tuple[PolicySpec, Champion | None]:
    """Return the policy of a name, by default the champion's, and the champion if it is that.

    Raises:
        ConfigError: the name means nothing.
        ModelError: the champion is asked for and there is none.
    """
    if policy == CHAMPION or (policy is None and not config.policy.adapter):
        champion = find_champion(config.paths, config.tracking)
        if champion is not None:
            return PolicySpec(CHAMPION, champion.policy(config.policy)), champion
        if policy == CHAMPION:
            raise ModelError(f"{config.tracking.registered_model} has no champion yet; promote one with `slmsearch run train-and-eval`")
    if policy is None:
        return PolicySpec(TRAINED if config.policy.adapter else UNTRAINED, config.policy), None
    return parse_policy(policy, config.policy, environment_of(config).controls.baselines, config.paths.data_dir), None


@dataclass(frozen=True)
class SearcherChoice:
    """Choice of the policy to ask or to serve: the named one, else the champion, else the configured one."""

    config: RunConfig
    policy: str | None
    """Name of the policy; None takes the champion, or the configured one before the first promotion."""
    say: Say
    """Receives lines for a person."""
    engine: str = TORCH
    """Engine of a model of transformers: torch, or llama.cpp, for which a file is made of it once."""
    as_measured: bool = False
    """Take the documents of the champion's evaluation, whatever was refreshed since."""
    wrong_at_most: float | None = None
    """Promise about the answers that are given, which `slmsearch calibrate` measures; None gives every answer."""

    def choose(self) -> tuple[PolicySpec, Champion | None]:
        """Return the policy, as `choose_policy` does, with a message if it is the untrained one.

        Raises:
            ConfigError: the name means nothing.
            ModelError: the champion is asked for by name and there is none, or llama.cpp cannot play it.
        """
        spec, champion = self._choose()
        return self._put_on_engine(spec), champion

    def _choose(self) -> tuple[PolicySpec, Champion | None]:
        config, policy = self.config, self.policy
        if policy is None or policy == CHAMPION:
            spec, champion = choose_policy(config, policy)
            if spec.name == UNTRAINED:
                model = config.policy.model
                self.say(f"nothing was promoted yet, so the untrained {model} answers; train a champion, or `slmsearch promote` a version")
            return spec, champion
        own = SearcherEnvironment.controls.baselines
        if policy in all_baselines() and policy not in own:
            raise ConfigError(f"policy {policy!r} cannot search; give champion, untrained, a path, or openai:MODEL@URL")
        return parse_policy(policy, config.policy, own, config.paths.data_dir), None

    def _put_on_engine(self, spec: PolicySpec) -> PolicySpec:
        if self.engine == TORCH or spec.policy is None:
            return spec
        require_llamacpp()
        require_policy(spec.policy, self.config.paths)
        folder, role = Path(self.config.paths.data_dir) / FILES, self.config.searcher.tool_role
        return replace(spec, policy=policy_of_llamacpp(spec.policy, folder, role))

    def find(self) -> ServedPolicy:
        """Return policy and index to serve: the champion on its documents, or another policy on the configured corpus.

        Raises:
            ConfigError: the name is no policy.
            ModelError: the policy does not exist, or cannot keep the promise.
            IndexUnusableError: the champion's index version is missing.
        """
        spec, champion = self.choose()
        if champion is not None:
            return self._promise(self._serve(champion, spec))
        if spec.policy is not None:
            require_policy(spec.policy, self.config.paths)
        return self._promise(ServedPolicy(spec.name, spec, self.config))

    def find_here(self) -> tuple[ServedPolicy, bool]:
        """Return what `find` does; where the refreshed documents are not in this data directory, those of the evaluation, and True."""
        try:
            return self.find(), False
        except IndexUnusableError:
            return replace(self, as_measured=True).find(), True

    @property
    def follows(self) -> bool:
        """Return True if it is the champion, which can change."""
        return self.policy == CHAMPION or (self.policy is None and not self.config.policy.adapter)

    def find_new(self, served: ServedPolicy, documents: bool = True) -> ServedPolicy | None:
        """Return the champion if it is not the one that plays, or with `documents` if it has another version of them.

        Raises:
            SlmSearchError: the store does not answer, or the champion cannot be played here.
        """
        champion = find_champion(self.config.paths, self.config.tracking)
        if champion is None:
            return None
        is_same = champion.label == served.version
        if is_same and not (documents and champion.documents not in (None, (served.corpus_digest, served.index_key))):
            return None
        found = self._serve(champion, self._put_on_engine(PolicySpec(CHAMPION, champion.policy(self.config.policy))))
        try:
            return self._promise(found)
        except ModelError as error:
            if is_same:
                return replace(found, promise=served.promise)  # void on these documents, as answers say; withdrawn pages must go
            if not documents or (found.corpus_digest, found.index_key) == (served.corpus_digest, served.index_key):
                raise
            self.say(f"{champion.label} does not play, but what plays answers from its documents: {error}")
            return replace(served, corpus_digest=found.corpus_digest, index_key=found.index_key)

    def _serve(self, champion: Champion, spec: PolicySpec) -> ServedPolicy:
        paths, measured = self.config.paths, champion.tags.get("slmsearch.data_digest", "")
        refreshed = None if self.as_measured else champion.documents
        digest, key = refreshed or (measured, champion.tags.get("slmsearch.index_key", ""))
        if not (key and is_complete(paths.index / key) and (paths.corpora / digest).is_dir()):
            remedy = "run refresh" if refreshed else "index build"
            raise IndexUnusableError(
                f"champion {champion.label} answers from index version {key or '(none recorded)'} of corpus "
                f"{digest or '(none recorded)'}, which is not in {paths.data_dir}: run `slmsearch {remedy}` with its "
                "settings, or name a policy with --policy"
            )
        return ServedPolicy(champion.label, spec, self.config, digest, key, measured)

    def calibration_file(self, spec: PolicySpec) -> Path:
        """Return the file of a policy's calibration with these settings."""
        searcher = self.config.searcher.model_dump(mode="json")
        policy, top_k = describe_policy(spec, self.config.evaluate), self.config.retrieval.top_k
        key = content_key(version=EVALUATION_VERSION, rules=RULES_VERSION, policy=policy, searcher=searcher, top_k=top_k)
        return Path(self.config.paths.data_dir) / "calibrations" / f"{key}.json"

    def _promise(self, served: ServedPolicy) -> ServedPolicy:
        """Return a policy with what keeps the promise.

        Raises:
            ModelError: it is not calibrated, or was wrong too often.
        """
        if self.wrong_at_most is None:
            return served
        found = read_calibration(self.calibration_file(served.spec))
        if found is None:
            raise ModelError(
                f"{served.version} is not calibrated with these settings: run `slmsearch calibrate`, or leave --wrong-at-most out"
            )
        promise = self.promise_of(found)
        if promise is None:
            wrong = sum(bad for _, bad, _ in found.answers)
            raise ModelError(
                f"{served.version} was wrong in {wrong} of {len(found.answers)} answers, and its surest ones are wrong too often, or too"
                f" few, to promise {self.wrong_at_most:g}: promise less, or calibrate on more questions"
            )
        return replace(served, promise=promise)

    def promise_of(self, calibration: Calibration) -> Promise | None:
        """Return the promise that is asked for, if a calibration keeps it."""
        assert self.wrong_at_most is not None
        kept = calibration.keep(self.wrong_at_most)
        return Promise(self.wrong_at_most, calibration, kept) if kept else None
