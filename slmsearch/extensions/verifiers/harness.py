"""The searcher as an environment of `verifiers`: the harness that plays a question, and the environment around it.

The harness is the rollout loop of `slmsearch evaluate` itself, in the process of `verifiers`: the loop's model is the address at
which `verifiers` records every call and passes it on to the policy, so that traces, limits and training see what was sampled.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import verifiers.v1 as vf

from slmsearch.environments.searcher.searcher_environment import SearcherEnvironment
from slmsearch.episodes.episode import Episode, StopReason
from slmsearch.episodes.sampler import Sampling
from slmsearch.errors import ConfigError, SlmSearchError
from slmsearch.evaluate.store import episode_to_dict
from slmsearch.extensions.verifiers.taskset import EPISODE, SearcherTaskset
from slmsearch.sampling.openai_sampler import OpenAISampler

__all__ = ["SearcherEnv", "SearcherHarness", "SearcherTaskset"]

STOPS = {
    StopReason.ANSWERED: "answered",
    StopReason.MALFORMED: "malformed",
    StopReason.MAX_TURNS: "max_turns",
    StopReason.MAX_TOKENS: "max_output_tokens",
}
"""Stop reasons -> stop conditions of a trace; the last two are names of `verifiers`, which counts such a trace as truncated."""

_THREADS = ThreadPoolExecutor(1024, thread_name_prefix="episode")
"""Maximum number of threads, which only wait for the policy; `verifiers` decides how many wait at once (`--max-concurrent`)."""


class SearcherHarness(vf.Harness[vf.HarnessConfig]):
    """Harness that plays one question with this project's prompt, tools and limits."""

    APPENDS_SYSTEM_PROMPT = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
    ) -> vf.ProgramResult:
        """Play the episode and leave it in the trace's `info`.

        Raises:
            ConfigError: the task is none of ours.
            SlmSearchError: the policy, the index or its embedder broke; such an episode is never scored.
        """
        environment = getattr(trace.state, "searcher", None)
        if not isinstance(environment, SearcherEnvironment):
            raise ConfigError("the harness `slmsearch` plays only tasks of the taskset `slmsearch`; choose another harness")
        system, prompt = self.resolve_text_prompt(data)
        environment = environment.changed({"searcher.system_prompt": system or ""})
        sampler = OpenAISampler(ctx.model, endpoint, secret, environment.config.searcher.tool_role)
        question = replace(trace.task.data.to_question(), question=prompt)
        play = partial(environment.play, [question], sampler, _sampling(ctx, trace, environment))
        (played,) = await asyncio.get_running_loop().run_in_executor(_THREADS, play)
        episode = _finish(played, trace.stop_condition)
        trace.info[EPISODE] = episode_to_dict(episode)
        trace.stop(STOPS[episode.stop_reason])
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")


class SearcherEnvConfig(vf.SingleAgentEnvConfig):
    """Settings of one searcher, which needs no sandbox."""

    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())
    """The policy; it plays in the process of `verifiers`."""


class SearcherEnv(vf.SingleAgentEnv, vf.Env[SearcherEnvConfig]):
    """One searcher, one question."""


def _sampling(ctx: vf.ModelContext, trace: vf.Trace, environment: SearcherEnvironment) -> Sampling:
    """Return the sampling of the run, by default greedy; settings of the run itself (`--sampling.*`) win over it."""
    temperature = ctx.sampling.temperature or 0.0
    # One seed for all would make the episodes of a group equal.
    seed = int(trace.id[:8], 16) if temperature else environment.config.evaluate.seed
    return Sampling(temperature, seed, environment.limits.max_turn_tokens)


def _finish(episode: Episode, stop_condition: str | None) -> Episode:
    """Tell an episode that a limit of `verifiers` ended, which refuses the next call, from one that a broken service ended."""
    if episode.stop_reason is not StopReason.FAILED:
        return episode
    if stop_condition is None:
        raise SlmSearchError(episode.failure)
    reason = StopReason.MAX_TURNS if stop_condition == "max_turns" else StopReason.MAX_TOKENS
    return replace(episode, stop_reason=reason, failure="")
