"""Hooks on optimizers, on GradScaler and on the autograd engine: they tell the agent what the loop does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.compiler import is_compiling
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from gpudoctor.recorder import torch_private

if TYPE_CHECKING:
    from gpudoctor.recorder.agent import Agent


def hook_optimizers(agent: Agent) -> None:
    """Tells the agent when an optimizer steps, or a scaler skips it."""
    begins, ended = agent.guarded(agent.optimizer_begins), agent.guarded(agent.optimizer_ended)
    scaled = agent.guarded(agent.scalers.stepped)

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        if is_compiling():
            return
        if agent.live():
            begins(id(optimizer))

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        if is_compiling():
            return
        if agent.live():
            ended(id(optimizer), "O")

    for handle in (register_optimizer_step_pre_hook(before), register_optimizer_step_post_hook(after)):
        agent.patches.on_undo(handle.remove)

    scaler = torch.amp.GradScaler
    original = getattr(scaler, "_maybe_opt_step", None)
    if original is None:
        return

    def _maybe_opt_step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if not agent.live():
            return original(self, optimizer, *args, **kwargs)
        before_it = agent.optimizer_events
        result = original(self, optimizer, *args, **kwargs)
        if agent.live():
            skipped = agent.optimizer_events == before_it
            if skipped:
                ended(id(optimizer), "S")  # skipped for infinities, or compiled so that its hooks are inlined
            scaled(self, skipped)
        return result

    agent.patches.set(scaler, "_maybe_opt_step", _maybe_opt_step)


def hook_backward(agent: Agent) -> None:
    """Tells the agent when backward is called, and marks it in profiles."""
    engine = torch_private.engine_entry()
    if engine is None:
        agent.notes.append("this torch starts backward elsewhere: backward was not watched")
        return
    begins, ended = agent.guarded(agent.backward_begins), agent.guarded(agent.backward_ended)
    fast = torch_private.record_function_fast
    now, live = agent.watch.now, agent.live

    def run_backward(*args: Any, **kwargs: Any) -> Any:
        if not live():
            return engine(*args, **kwargs)
        started = now()
        begins(args, kwargs)
        try:
            if fast is None:
                return engine(*args, **kwargs)
            with fast("gpudoctor::backward"):
                return engine(*args, **kwargs)
        finally:
            ended(started, args)

    agent.patches.set(torch.autograd, "_engine_run_backward", torch_private.as_torch_code(run_backward))
